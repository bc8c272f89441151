"""The tasks. What each did goes into a file, a line for each step, so that the trials see what was done how often."""

import json
import os
import time

from django.db.models import F
from django_lightweight_queue import task

from .models import Order


def note(*words):
    """Lines of several processes do not mix: they are short, and appended by one write each."""
    line = json.dumps([*words, os.getpid()]) + "\n"
    file = os.open(os.environ["RQ_TRIAL_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, line.encode())
    os.close(file)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)


@task("orders")
def charge(number):
    """In a transaction of the database (atomic is the package's default)."""
    Order.objects.filter(number=number).update(charged=F("charged") + 1)
    note("charged", number)


@task("mail", atomic=False)
def send(name):
    note("sent", name)


@task("mail", atomic=False)
def wait(name, path):
    """Works until somebody makes the file."""
    note("began", name)
    wait_for(path)
    note("ended", name)


@task("render", timeout=1, atomic=False)
def hang(name):
    """Never ends by itself; its time-out ends it, and its worker with it."""
    note("began", name)
    while True:
        time.sleep(60)


@task("render", atomic=False)
def refuse(name):
    note("tried", name)
    raise ValueError(f"no printer for {name}")


@task("newsletter", atomic=False)
def newsletter(issue):
    note("newsletter", issue)


@task("machines", atomic=False)
def work(number, milliseconds):
    note("began", number)
    time.sleep(milliseconds / 1000)
    note("ended", number)
