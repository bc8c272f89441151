"""What the package asks of a backend, one scenario each, against the backend in this process. `run` prepares Django."""

import datetime
import io
import itertools
import os
import unittest
from unittest import mock

from common import until
from django.core.management import CommandError, call_command
from django_lightweight_queue import app_settings, cron_scheduler
from django_lightweight_queue.backends.base import BackendWithClear, BackendWithDeduplicate, BackendWithPauseResume
from django_lightweight_queue.job import Job
from django_lightweight_queue.progress_logger import ProgressLogger
from django_lightweight_queue.utils import get_backend
from rq_backend import RetryMiddleware, RqBackend
from shop import tasks

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
names = itertools.count(1)


class Scenario(unittest.TestCase):
    server = None  # set by `run`

    def setUp(self):
        self.backend = RqBackend()
        self.queue = f"queue-{next(names)}"
        get_backend.cache_clear()

    def job(self, *args, path="shop.tasks.send", created=NOW, **more):
        job = Job(path, args, {}, **more)
        job.created_time = created
        return job

    def enqueue(self, *args, **more):
        job = self.job(*args, **more)
        self.backend.enqueue(job, self.queue)
        return job

    def take(self, worker=1, backend=None, timeout=0.01):
        return (backend or self.backend).dequeue(self.queue, worker, timeout)

    def work_off(self, worker=1):
        """What the waiting jobs are, in the order in which they are handed out."""
        done = []
        while (job := self.take(worker)) is not None:
            done.append(job.args[0])
            self.backend.processed_job(self.queue, worker, job)
        return done

    def key(self):
        return self.backend._key(self.queue)

    def stats(self):
        return self.server.map("RQ.STATS", self.key())

    def workers(self, count):
        return mock.patch.dict(app_settings.WORKERS, {self.queue: count})


class Queueing(Scenario):
    def test_it_has_all_that_a_backend_can_have(self):
        for kind in (BackendWithClear, BackendWithDeduplicate, BackendWithPauseResume):
            self.assertIsInstance(self.backend, kind)

    def test_what_comes_out_is_what_went_in(self):
        put = self.enqueue("ada", timeout=7, sigkill_on_stop=True)
        got = self.take()
        self.assertEqual((got.to_json(), got.as_dict()), (put.to_json(), {**put.as_dict(), "args": ["ada"]}))

    def test_first_in_first_out(self):
        for number in range(5):
            self.enqueue(number)
        self.assertEqual(self.backend.length(self.queue), 5)
        self.assertEqual(self.work_off(), list(range(5)))
        self.assertEqual(self.backend.length(self.queue), 0)

    def test_many_at_once_keep_their_order_whatever_their_options(self):
        jobs = [self.job(number, sigkill_on_stop=number % 7 == 0) for number in range(2500)]
        self.backend.bulk_enqueue(jobs, self.queue)
        self.assertEqual(self.backend.length(self.queue), 2500)
        self.assertEqual(self.work_off(), list(range(2500)))

    def test_nothing_at_once(self):
        self.backend.bulk_enqueue([], self.queue)
        self.assertEqual(self.backend.length(self.queue), 0)

    def test_an_empty_queue_gives_nothing(self):
        self.assertIsNone(self.take())

    def test_queues_do_not_mix(self):
        self.enqueue("here")
        self.assertEqual(self.backend.length(self.queue + "-other"), 0)
        self.assertIsNone(self.backend.dequeue(self.queue + "-other", 1, 0.01))

    def test_a_job_that_is_worked_on_does_not_wait(self):
        self.enqueue("ada")
        job = self.take()
        self.assertEqual(self.backend.length(self.queue), 0)
        self.assertIsNone(self.take(worker=2))
        self.backend.processed_job(self.queue, 1, job)
        self.assertEqual((self.stats()[b"active"], self.stats()[b"done"]), (0, 0))

    def test_a_prefix_keeps_projects_apart(self):
        self.enqueue("ours")
        with mock.patch.object(app_settings, "REDIS_PREFIX", "other"):
            self.assertEqual(self.backend.length(self.queue), 0)
            self.enqueue("theirs")
            self.assertEqual(self.work_off(), ["theirs"])
        self.assertEqual(self.work_off(), ["ours"])


class Custody(Scenario):
    def test_startup_takes_back_what_an_unknown_worker_holds(self):
        put = self.enqueue("ada")
        self.take(worker=3)
        with self.workers(2):
            self.backend.startup(self.queue)
        self.assertEqual(self.backend.length(self.queue), 1)
        self.assertEqual(self.take(worker=1).to_json(), put.to_json())

    def test_startup_leaves_alone_what_known_workers_hold(self):
        self.enqueue("ada")
        held = self.take(worker=3)
        with self.workers(3):
            self.backend.startup(self.queue)
        self.assertEqual(self.backend.length(self.queue), 0)
        self.backend.processed_job(self.queue, 3, held)
        self.assertEqual(self.stats()[b"active"], 0)

    def test_startup_without_any_worker_or_queue(self):
        with self.workers(0):
            self.backend.startup(self.queue)  # there is no such queue yet
            self.enqueue("ada")
            self.take()
            self.backend.startup(self.queue)
        self.assertEqual(self.backend.length(self.queue), 1)

    def test_startup_takes_back_thousands(self):
        self.backend.bulk_enqueue([self.job(number) for number in range(2100)], self.queue)
        for _ in range(3):
            self.server.call("RQ.CLAIM", self.key(), "worker-9", "COUNT", 1000)
        with self.workers(8):
            self.backend.startup(self.queue)
        self.assertEqual(self.work_off(), list(range(2100)))

    def test_a_worker_that_comes_back_takes_up_what_it_held(self):
        self.enqueue("first")
        self.enqueue("second")
        self.assertEqual(self.take().args, ["first"])
        again = RqBackend()  # a new process of the same number
        self.assertEqual(self.take(backend=again).args, ["first"])
        self.assertEqual(self.take(backend=again).args, ["second"])

    def test_what_was_taken_from_a_worker_it_can_end_without_harm(self):
        self.enqueue("ada")
        late = self.take(worker=3)
        with self.workers(2):
            self.backend.startup(self.queue)
        mine = self.take(worker=1)
        with self.assertLogs("dlq.rq", "WARNING"):
            self.backend.processed_job(self.queue, 3, late)
        self.assertEqual(self.stats()[b"active"], 1)
        self.backend.processed_job(self.queue, 1, mine)
        self.assertEqual(self.stats()[b"active"], 0)

    def test_a_long_job_is_kept_by_the_heartbeat(self):
        with mock.patch.object(self.backend, "lease", 300):
            self.enqueue("ada")
            job = self.take()
            first = self.server.map("RQ.JOB", self.key(), job.rq_delivery[0])[b"lease-until"]

            def extended_for_long():
                now = self.server.map("RQ.JOB", self.key(), job.rq_delivery[0])
                self.assertEqual((now[b"state"], now[b"deliveries"]), (b"active", 1))
                return now[b"lease-until"] > first + 900

            until("three leases", extended_for_long)
            self.backend.processed_job(self.queue, 1, job)
            self.assertEqual(self.stats()[b"active"], 0)

    def test_a_worker_that_vanishes_is_replaced_by_any_other(self):
        gone = RqBackend()
        with mock.patch("rq_backend.Heartbeat.run"), mock.patch.object(gone, "lease", 100):
            self.enqueue("ada")
            self.take(worker=1, backend=gone)
        self.assertEqual(self.take(worker=2, timeout=30).args, ["ada"])

    def test_a_job_that_kills_its_workers_is_given_up_and_kept(self):
        self.backend.enqueue(self.job("ada"), self.queue)
        self.server.call("RQ.QUEUE.SET", self.key(), "CRASHES", 1)
        for _ in range(2):
            self.assertEqual(self.take(backend=RqBackend()).args, ["ada"])
        self.assertIsNone(self.take(backend=RqBackend()))
        self.assertEqual(self.stats()[b"dead"], 1)

    def test_a_job_that_stops_kill_is_never_given_up(self):
        self.enqueue("ada", sigkill_on_stop=True)
        self.server.call("RQ.QUEUE.SET", self.key(), "CRASHES", 1)
        for _ in range(4):
            self.assertEqual(self.take(backend=RqBackend()).args, ["ada"])


class Deduplicating(Scenario):
    def test_of_an_empty_queue(self):
        self.assertEqual(self.backend.deduplicate(self.queue), (0, 0))

    def test_without_duplicates(self):
        self.enqueue("ada")
        self.assertEqual(self.backend.deduplicate(self.queue), (1, 1))
        self.enqueue("bob")
        self.assertEqual(self.backend.deduplicate(self.queue), (2, 2))
        self.assertEqual(self.work_off(), ["ada", "bob"])

    def test_the_oldest_stays_where_it_is(self):
        for name in ("ada", "bob", "ada", "eve", "bob", "ada"):
            self.enqueue(name)
        self.assertEqual(self.backend.deduplicate(self.queue), (6, 3))
        self.assertEqual(self.work_off(), ["ada", "bob", "eve"])

    def test_when_it_was_made_does_not_matter(self):
        for second, name in enumerate(("ada", "bob", "ada", "eve", "bob", "ada")):
            self.enqueue(name, created=NOW + datetime.timedelta(seconds=second))
        self.assertEqual(self.backend.deduplicate(self.queue), (6, 3))
        self.assertEqual(self.work_off(), ["ada", "bob", "eve"])

    def test_all_else_matters(self):
        self.enqueue("ada")
        self.enqueue("ada", timeout=5)
        self.enqueue("ada", sigkill_on_stop=True)
        self.enqueue("ada", path="shop.tasks.newsletter")
        self.enqueue("ada", "bob")
        self.assertEqual(self.backend.deduplicate(self.queue), (5, 5))

    def test_what_is_worked_on_is_left_alone(self):
        self.enqueue("ada")
        held = self.take()
        self.enqueue("ada")
        self.assertEqual(self.backend.deduplicate(self.queue), (1, 1))
        self.backend.processed_job(self.queue, 1, held)
        self.assertEqual(self.work_off(), ["ada"])

    def test_thousands_with_progress(self):
        self.backend.bulk_enqueue([self.job(number % 700) for number in range(2500)], self.queue)
        said, counted = [], []

        def progress(items):
            for item in items:
                counted.append(item)
                yield item

        result = self.backend.deduplicate(self.queue, progress_logger=ProgressLogger(said.append, progress))
        self.assertEqual(result, (2500, 700))
        self.assertEqual(len(said), 2)
        self.assertEqual(len(counted), 2500 + 2)  # the jobs, and two calls that cancel
        self.assertEqual(self.work_off(), list(range(700)))

    def test_as_a_command(self):
        for name in ("ada", "ada", "bob"):
            self.enqueue(name)
        self.assertIn("from 3 jobs to 2", command("queue_deduplicate", self.queue))
        self.assertIn("remains 2", command("queue_deduplicate", self.queue))


class PausingAndClearing(Scenario):
    def later(self, **more):
        return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(**more)

    def test_nothing_is_handed_out_until_resumed(self):
        self.enqueue("ada")
        self.assertFalse(self.backend.is_paused(self.queue))
        self.backend.pause(self.queue, self.later(minutes=5))
        self.assertTrue(self.backend.is_paused(self.queue))
        self.assertFalse(self.backend.is_paused(self.queue + "-other"))
        self.assertIsNone(self.take())
        self.enqueue("bob")
        self.assertEqual(self.backend.length(self.queue), 2)
        self.backend.resume(self.queue)
        self.assertFalse(self.backend.is_paused(self.queue))
        self.assertEqual(self.work_off(), ["ada", "bob"])

    def test_it_ends_by_itself_and_serves_who_waits(self):
        self.enqueue("ada")
        self.backend.pause(self.queue, self.later(seconds=1))
        self.assertEqual(self.take(timeout=30).args, ["ada"])
        self.assertFalse(self.backend.is_paused(self.queue))

    def test_a_queue_may_be_paused_before_its_first_job(self):
        self.backend.pause(self.queue, self.later(minutes=5))
        self.enqueue("ada")
        self.assertIsNone(self.take())
        self.backend.resume(self.queue + "-unknown")

    def test_as_commands(self):
        text = command("queue_pause", self.queue, "--until", self.later(minutes=5).strftime("%Y-%m-%dT%H:%M:%S%z"))
        self.assertIn(self.queue, text)
        self.assertTrue(self.backend.is_paused(self.queue))
        command("queue_resume", self.queue)
        self.assertFalse(self.backend.is_paused(self.queue))
        command("queue_pause", self.queue, "--for", "1h")
        self.assertGreater(self.stats()[b"paused-until"], datetime.datetime.now().timestamp() * 1000 + 3500_000)
        with self.assertRaises(CommandError):
            command("queue_pause", self.queue, "--until", "2001-01-01T00:00:00+0000")

    def test_clearing_leaves_alone_what_is_worked_on(self):
        self.enqueue("ada")
        held = self.take()
        self.backend.bulk_enqueue([self.job(number) for number in range(1500)], self.queue)
        command("queue_clear", self.queue, "--yes")
        self.assertEqual(self.backend.length(self.queue), 0)
        self.assertIsNone(self.take())
        self.assertEqual(self.stats()[b"active"], 1)
        self.backend.processed_job(self.queue, 1, held)


class BeyondThePackage(Scenario):
    def test_jobs_that_raise_are_tried_again_and_end_dead(self):
        self.enqueue("ada", path="shop.tasks.refuse")
        self.server.call("RQ.QUEUE.SET", self.key(), "ATTEMPTS", 2, "BACKOFF", 1)
        for _ in range(2):
            job = self.take(timeout=30)
            self.assertFalse(job.run(queue=self.queue, worker_num=1))
            self.backend.processed_job(self.queue, 1, job)
        self.assertIsNone(self.take())
        [_cursor, [dead]] = self.server.call("RQ.LIST", self.key(), "dead")
        self.assertEqual(dict(zip(dead[::2], dead[1::2]))[b"error"], b"ValueError: no printer for ada")

    def test_without_the_middleware_they_are_dropped_as_ever(self):
        with mock.patch.object(RetryMiddleware, "process_exception"):
            self.enqueue("ada", path="shop.tasks.refuse")
            job = self.take()
            self.assertFalse(job.run(queue=self.queue, worker_num=1))
            self.backend.processed_job(self.queue, 1, job)
        self.assertEqual((self.backend.length(self.queue), self.stats()[b"dead"]), (0, 0))


class WithoutDuplicates(Scenario):
    """A queue that the setting RQ_UNIQUE_QUEUES names."""

    def setUp(self):
        super().setUp()
        self.backend.unique = frozenset([self.queue])

    def test_an_equal_job_that_waits_is_enough(self):
        self.enqueue("ada")
        self.enqueue("bob")
        self.enqueue("ada", created=NOW + datetime.timedelta(seconds=1))
        self.enqueue("ada", timeout=5)  # another one
        self.assertEqual(self.backend.length(self.queue), 3)
        self.assertEqual(self.backend.deduplicate(self.queue), (3, 3))
        self.assertEqual(self.work_off(), ["ada", "bob", "ada"])

    def test_what_is_worked_on_may_wait_once_more(self):
        self.enqueue("ada")
        held = self.take()
        for _ in range(3):
            self.enqueue("ada")
        self.assertEqual(self.backend.length(self.queue), 1)
        self.backend.processed_job(self.queue, 1, held)
        self.assertEqual(self.work_off(), ["ada"])
        self.enqueue("ada")
        self.assertEqual(self.work_off(), ["ada"])

    def test_many_at_once(self):
        self.backend.bulk_enqueue([self.job(number % 700) for number in range(2500)], self.queue)
        self.assertEqual(self.work_off(), list(range(700)))

    def test_other_queues_take_all(self):
        RqBackend().enqueue(self.job("ada"), self.queue)
        RqBackend().enqueue(self.job("ada"), self.queue)
        self.assertEqual(self.backend.length(self.queue), 2)


class Tasks(Scenario):
    """The decorator and the cron scheduler, with the backend that the settings name."""

    def setUp(self):
        super().setUp()
        self.server.call("DEL", *(self.backend._key(queue) for queue in ("mail", "cron", "orders")))

    def taken(self, queue):
        job = self.backend.dequeue(queue, 1, 0.01)
        self.backend.processed_job(queue, 1, job)
        return job

    def test_a_call_becomes_a_job(self):
        tasks.send("ada")
        job = self.taken("mail")
        self.assertEqual((job.path, job.args, job.kwargs, job.timeout, job.sigkill_on_stop), ("shop.tasks.send", ["ada"], {}, None, False))

    def test_options_of_a_call(self):
        tasks.send("ada", django_lightweight_queue_timeout=9, django_lightweight_queue_sigkill_on_stop=True, django_lightweight_queue_queue="orders")
        self.assertEqual(self.backend.length("mail"), 0)
        job = self.taken("orders")
        self.assertEqual((job.timeout, job.sigkill_on_stop), (9, True))

    def test_calls_in_bulk(self):
        with tasks.send.bulk_enqueue(batch_size=3) as enqueue:
            for number in range(7):
                enqueue(name=number)
            self.assertEqual(self.backend.length("mail"), 6)
        self.assertEqual([self.taken("mail").kwargs["name"] for _ in range(7)], list(range(7)))
        with tasks.send.bulk_enqueue(queue_override="orders") as enqueue:
            enqueue("ada")
        self.assertEqual((self.backend.length("mail"), self.taken("orders").args), (0, ["ada"]))

    def test_the_settings_say_which_queues_are_unique(self):
        self.server.call("DEL", self.backend._key("newsletter"))
        for issue in (1, 2, 1):
            tasks.newsletter(issue)
        self.assertEqual([self.taken("newsletter").args for _ in range(2)], [[1], [2]])
        self.assertEqual(self.backend.length("newsletter"), 0)

    def test_cron_at_its_minute(self):
        at = datetime.datetime(2026, 1, 2, 3, 4, 0)
        with mock.patch.object(cron_scheduler.datetime, "datetime", mock.Mock(utcnow=lambda: at)):
            cron_scheduler.CronScheduler(cron_scheduler.get_cron_config()).tick(self.backend)
        job = self.taken("cron")
        self.assertTrue(job.run(queue="cron", worker_num=1))
        with open(os.environ["RQ_TRIAL_NOTES"], encoding="utf-8") as file:
            self.assertIn('["stocktake", "shelf"', file.read())


def command(*words):
    said = io.StringIO()
    call_command(*words, stdout=said)
    return said.getvalue()
