"""The package's own runner and its worker processes on the module, with the tasks of the project."""

import collections
import contextlib
import datetime
import json
import os
import signal
import socket
import sys
import unittest
import urllib.request

from common import PATIENCE, expect, until
from django.core.management import call_command
from django.db import connection
from django_lightweight_queue.utils import get_backend
from rq_backend import RqBackend
from scenarios import command
from shop import tasks
from shop.models import Order

MANAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "project", "manage.py")
MOMENT = 3  # seconds of a pause that ends by itself


class Live(unittest.TestCase):
    stage = server = None  # set by `run`

    def setUp(self):
        self.server.call("FLUSHALL")
        self.server.call("CONFIG", "RESETSTAT")
        get_backend.cache_clear()
        self.runner = None
        self.backend = RqBackend()
        self.log = f"{self.id().rpartition('.')[2]}.log"
        for path in (os.environ["RQ_TRIAL_NOTES"], self.path("said")):
            open(path, "w", encoding="utf-8").close()

    def tearDown(self):
        if self.runner is not None:
            self.stage.end(self.runner)
        spent = self.server.spent()
        self.assertFalse({"scan", "keys"} & set(spent), "somebody searched the keyspace")

    def run_queues(self, **workers):
        """Starts the runner with so many workers for each of these queues."""
        extra = self.path("extra.py")
        with open(extra, "w", encoding="utf-8") as file:
            file.write(f"LIGHTWEIGHT_QUEUE_WORKERS = {workers!r}\nLIGHTWEIGHT_QUEUE_REDIS_PORT = {self.server.port}\n")
        command = [sys.executable, MANAGE, "queue_runner", "--exact-configuration", "--extra-settings", extra,
                   "--touchfile", self.path("touched-%s")]  # fmt: skip
        # Only the extra settings have the right port.
        self.runner = self.stage.start(command, {"RQ_TRIAL_CLOCK": self.path("said"), "RQ_TRIAL_PORT": "1"}, log=self.log)

    def said(self):
        """What the runner and its workers reported."""
        with open(self.path("said"), encoding="utf-8") as file:
            return file.read()

    def path(self, name):
        return os.path.join(self.stage.folder, name)

    def notes(self, *words):
        """Those that begin so: what follows, the process last."""
        with open(os.environ["RQ_TRIAL_NOTES"], encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return [line[len(words) :] for line in lines if tuple(line[: len(words)]) == words]

    def stats(self, queue):
        return self.server.map("RQ.STATS", self.backend._key(queue))

    def worked_off(self, queue):
        def is_empty():
            expect("the runner ended", self.runner.poll() is None)
            stats = self.stats(queue)
            return not (stats[b"ready"] or stats[b"delayed"] or stats[b"active"])

        until(f"{queue} is worked off", is_empty)

    def waiting_workers(self, queue):
        """How many wait for a job. The queue must exist."""
        [_cursor, workers] = self.server.call("RQ.WORKERS", self.backend._key(queue))
        return sum(dict(zip(worker[::2], worker[1::2]))[b"waiting-since"] is not None for worker in workers)

    def began(self, name, times=1):
        """Waits until this job has begun so often; the process that has it."""
        return until(f"{name} begins", lambda: len(found := self.notes("began", name)) >= times and found[-1][-1])

    def make(self, name):
        path = self.path(f"{self.log}-{name}")
        open(path, "w", encoding="utf-8").close()
        return path

    def not_yet(self, name):
        return self.path(f"{self.log}-{name}")

    def stop(self):
        self.runner.send_signal(signal.SIGTERM)
        self.assertEqual(self.runner.wait(PATIENCE), 0)

    def test_a_task_set(self):
        call_command("migrate", run_syncdb=True, verbosity=0)
        Order.objects.bulk_create(Order(number=number) for number in range(150))
        connection.close()
        self.run_queues(orders=3, mail=1)
        with tasks.charge.bulk_enqueue(batch_size=40) as enqueue:
            for number in range(100):
                enqueue(number)
        for number in range(100, 150):
            tasks.charge(number)
            tasks.send(number)
        self.worked_off("orders")
        self.worked_off("mail")
        self.assertEqual(list(Order.objects.values_list("charged", flat=True).distinct()), [1])
        self.assertEqual([note[0] for note in self.notes("sent")], list(range(100, 150)))
        self.assertEqual(len(self.notes("charged")), 150)
        self.assertTrue(os.path.exists(self.path("touched-orders")))
        self.assertEqual(self.server.call("DBSIZE"), 2)
        self.stop()

    def test_a_worker_killed_at_work(self):
        self.run_queues(mail=1)
        tasks.wait("ada", self.not_yet("go"))
        tasks.send("next")
        first = self.began("ada")
        os.kill(first, signal.SIGKILL)
        second = self.began("ada", times=2)
        self.make("go")
        self.worked_off("mail")
        self.assertNotEqual(first, second)
        self.assertEqual(self.notes("ended", "ada"), [[second]])
        self.assertEqual(self.notes("sent"), [["next", second]])

    def test_a_machine_that_vanishes(self):
        """Nobody starts its workers again; those of another take over when the lease is over."""
        os.environ["RQ_TRIAL_LEASE"] = "1.5"
        try:
            self.run_queues(mail=1)
            tasks.wait("ada", self.not_yet("go"))
            first = self.began("ada")
            self.stage.end(self.runner)  # all of its processes, by kill -9
            other = RqBackend()
            job = other.dequeue("mail", 2, 30)
            self.assertEqual(job.args[0], "ada")
            other.processed_job("mail", 2, job)
            self.assertEqual(self.notes("began", "ada"), [[first]])
        finally:
            del os.environ["RQ_TRIAL_LEASE"]

    def test_pause_and_resume(self):
        command("queue_pause", "mail", "--for", "1h")
        for name in ("ada", "bob", "eve"):
            tasks.send(name)
        self.run_queues(mail=1)
        until("the worker waits", lambda: self.waiting_workers("mail") == 1)
        self.assertEqual((self.stats("mail")[b"ready"], self.notes("sent")), (3, []))
        command("queue_resume", "mail")
        self.worked_off("mail")
        self.assertEqual([note[0] for note in self.notes("sent")], ["ada", "bob", "eve"])
        # Until a time, which nobody has to notice.
        until("the worker waits", lambda: self.waiting_workers("mail") == 1)
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=MOMENT)
        command("queue_pause", "mail", "--until", end.strftime("%Y-%m-%dT%H:%M:%S%z"))
        tasks.send("late")
        self.assertEqual((self.stats("mail")[b"ready"], self.stats("mail")[b"paused"]), (1, 1))
        self.worked_off("mail")
        self.assertGreaterEqual(datetime.datetime.now(datetime.timezone.utc), end.replace(microsecond=0))
        self.assertEqual(len(self.notes("sent")), 4)

    def test_deduplicate_and_clear(self):
        command("queue_pause", "mail", "--for", "1h")
        for name in ("ada", "bob", "ada", "ada", "eve"):
            tasks.send(name)
        self.run_queues(mail=1)
        self.assertIn("from 5 jobs to 3", command("queue_deduplicate", "mail"))
        command("queue_resume", "mail")
        self.worked_off("mail")
        self.assertEqual([note[0] for note in self.notes("sent")], ["ada", "bob", "eve"])
        tasks.wait("long", self.not_yet("go"))
        self.began("long")
        for _ in range(20):
            tasks.send("never")
        command("queue_clear", "mail", "--yes")
        self.make("go")
        self.worked_off("mail")
        self.assertEqual(len(self.notes("ended", "long")), 1)
        self.assertEqual(len(self.notes("sent")), 3)

    def test_the_runner_stops(self):
        """SIGTERM: what is worked on is ended, what waits goes on waiting."""
        self.run_queues(mail=1)
        tasks.wait("ada", self.not_yet("go"))
        tasks.send("next")
        self.began("ada")
        self.runner.send_signal(signal.SIGTERM)
        until("it waits for its workers", lambda: "Waiting for mail/1" in self.said())
        self.make("go")
        self.assertEqual(self.runner.wait(PATIENCE), 0)
        self.assertEqual((len(self.notes("ended", "ada")), self.notes("sent")), (1, []))
        self.assertEqual((self.stats("mail")[b"active"], self.stats("mail")[b"ready"]), (0, 1))

    def test_a_time_out(self):
        """The package kills the worker by SIGALRM, and the job would be taken up again for ever; here it ends dead."""
        self.server.call("RQ.QUEUE.SET", self.backend._key("render"), "CRASHES", 1)
        self.run_queues(render=1)
        tasks.hang("ada")
        until("it is given up", lambda: self.stats("render")[b"dead"] == 1)
        self.assertEqual(len(self.notes("began", "ada")), 2)
        tasks.refuse("bob")  # a worker is there again
        until("it is tried", lambda: self.notes("tried", "bob"))

    def test_a_job_that_raises(self):
        self.server.call("RQ.QUEUE.SET", self.backend._key("render"), "ATTEMPTS", 3, "BACKOFF", 1)
        self.run_queues(render=2)
        tasks.refuse("ada")
        until("it is given up", lambda: self.stats("render")[b"dead"] == 1)
        self.assertEqual(len(self.notes("tried", "ada")), 3)

    def test_the_server_goes_and_comes_back(self):
        self.server.call("CONFIG", "SET", "appendfsync", "always")
        self.run_queues(mail=2)
        tasks.wait("ada", self.not_yet("go"))
        worker = self.began("ada")
        self.server.restart()
        self.make("go")
        self.worked_off("mail")
        tasks.send("next")
        self.worked_off("mail")
        self.assertEqual(self.notes("began", "ada"), [[worker]])
        self.assertEqual(collections.Counter(note[0] for note in self.notes("sent")), {"next": 1})

    def test_a_daemon_with_metrics(self):
        """--pidfile forks after Django was set up; Prometheus asks the runner which ports its workers have."""
        port, pidfile = free_ports(2), self.path("pid")
        environment = {"RQ_TRIAL_PROMETHEUS": str(port), "RQ_TRIAL_WORKERS": json.dumps({"mail": 1}), "RQ_TRIAL_CLOCK": self.path("said")}
        command = [sys.executable, MANAGE, "queue_runner", "--only-queue", "mail", "--pidfile", pidfile]
        self.runner = self.stage.start(command, environment, log=self.log)
        group = None
        try:
            group = os.getpgid(int(until("it writes its number", lambda: os.path.exists(pidfile) and open(pidfile, encoding="utf-8").read())))
            tasks.send("ada")
            until("the job is done", lambda: self.notes("sent"))
            [workers] = json.loads(get(port, "/worker_config"))
            self.assertEqual((workers["labels"]["django_lightweight_queue_worker_queue"], workers["targets"][0].rpartition(":")[2]), ("mail", str(port + 1)))
            until("the job is counted", lambda: 'item_processed_seconds_count{queue="mail"} 1.0' in get(port + 1, "/metrics"))
            os.kill(group, signal.SIGTERM)
            until("the daemon ends", lambda: not os.path.exists(pidfile))
        finally:
            if group is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)

    def test_what_the_configuration_command_says(self):
        with unittest.mock.patch("builtins.print") as said:
            call_command("queue_configuration")
        text = "\n".join(str(call.args[0]) for call in said.call_args_list if call.args)
        self.assertRegex(text, r"mail +1 +RqBackend")
        self.assertRegex(text, r"command +: stocktake")


def free_ports(count):
    """The first of so many ports in a row that are free now."""
    while True:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind(("0.0.0.0", 0))
            port = first.getsockname()[1]
            try:
                for more in range(1, count):
                    stack.enter_context(socket.socket()).bind(("0.0.0.0", port + more))
                return port
            except (OSError, OverflowError):
                pass


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
        return answer.read().decode()
