"""A client of the application that does what it is told on standard input, one line each, and answers in JSON. For compare.py."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import application

mq, PATIENCE = application.mq, 600
MEGABYTES = 7 * 1024 * 1024


def fill(count):
    """So many tasks, whose results nobody fetches."""
    for i in range(count):
        application.echo("x" * 500 + str(i))


def result(task):
    return task.get_result(mq.redis_client, timeout=PATIENCE)


def stream(task):
    return sum(1 for _ in task.get_stream(mq.redis_client, timeout=PATIENCE))


def work(scale):
    """Tasks of all kinds, whose callers wait for them, 20 at a time. How many there were."""
    calls = [lambda: result(application.nap(2))] * 4
    calls += [lambda: stream(application.multiples(1, 20, 0.02))] * 5
    calls += [lambda: result(application.train({"epochs": 10, "name": "train"}))] * 5
    calls += [lambda: result(application.echo("x" * 1000))] * 46
    calls *= scale
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda call: call(), calls))
    return len(calls)


def look():
    """What an operator looks at."""
    return [len(mq.get_failed_tasks()), len(mq.get_completed_tasks(limit=20)), mq.get_task_stats()["total"]]


def large():
    return len(result(application.echo("x" * MEGABYTES)))


def prune():
    return mq.prune_old_task_results()


print("ready", flush=True)
for line in sys.stdin:
    name, *words = line.split()
    found = globals()[name](*map(int, words))
    print(json.dumps(found), flush=True)
os._exit(0)
