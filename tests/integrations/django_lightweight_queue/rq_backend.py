"""django-lightweight-queue on redis-rq: each of its queues is one key of the module.

Put this file where Django finds it and name it in the settings; host, port, password, database and prefix are those that
the package itself has (LIGHTWEIGHT_QUEUE_REDIS_...):

    LIGHTWEIGHT_QUEUE_BACKEND = "rq_backend.RqBackend"

Besides, all of them optional:

    RQ_LEASE = 60           seconds without a sign of life after which a job is given to another worker. A thread of the
                            worker gives three in that time, however long the job takes
    RQ_UNIQUE_QUEUES = ()   names of queues that take no job which equals one that waits already
    LIGHTWEIGHT_QUEUE_MIDDLEWARE = (..., "rq_backend.RetryMiddleware")
                            jobs that raise are tried again, and end dead with the error; without it they are dropped
"""

import datetime
import hashlib
import itertools
import logging
import threading
import time
import traceback

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_lightweight_queue import app_settings
from django_lightweight_queue.backends.base import BackendWithClear, BackendWithDeduplicate, BackendWithPauseResume
from django_lightweight_queue.job import Job
from django_lightweight_queue.progress_logger import NULL_PROGRESS_LOGGER
from django_lightweight_queue.utils import get_worker_numbers

AT_ONCE = 1000  # jobs in one call, the most that the module takes
LONGEST_BLOCK = 30  # seconds of a claim; the worker asks again
SOCKET_TIMEOUT = 60  # seconds; longer than a claim blocks

log = logging.getLogger("dlq.rq")


class RqBackend(BackendWithClear, BackendWithDeduplicate, BackendWithPauseResume):
    """At least once. A job is lost by nothing that a worker or its machine does."""

    def __init__(self):
        # No retries by the client: an enqueue that is repeated unasked would be there twice.
        self.client = redis.Redis(host=app_settings.REDIS_HOST, port=app_settings.REDIS_PORT, password=app_settings.REDIS_PASSWORD,
                                  db=app_settings.REDIS_DATABASE, socket_timeout=SOCKET_TIMEOUT, protocol=2,
                                  retry=Retry(NoBackoff(), 0))  # fmt: skip
        self.lease = int(getattr(settings, "RQ_LEASE", 60) * 1000)
        self.unique = frozenset(getattr(settings, "RQ_UNIQUE_QUEUES", ()))
        self.known = set()  # (queue, worker number) that have claimed already, in this process
        self.heartbeat = None

    # Producers

    def enqueue(self, job, queue):
        self.client.execute_command(*self._enqueuing(queue, job))

    def bulk_enqueue(self, jobs, queue):
        """In this order, all or none."""
        if queue in self.unique:
            calls = [self._enqueuing(queue, job) for job in jobs]
        else:
            calls = [("RQ.MENQUEUE", self._key(queue), *options, "JOBS", len(payloads), *payloads)
                     for options, alike in itertools.groupby(jobs, self._options)
                     for payloads in parts([job.to_json() for job in alike])]  # fmt: skip
        with self.client.pipeline(transaction=len(calls) > 1) as pipeline:
            for call in calls:
                pipeline.execute_command(*call)
            pipeline.execute()

    def _enqueuing(self, queue, job):
        unique = ("UNIQUE", identity(job), "UNTIL", "started") if queue in self.unique else ()
        return "RQ.ENQUEUE", self._key(queue), job.to_json(), *self._options(job), *unique

    @staticmethod
    def _options(job):
        # Each stop of the workers kills such a job, which is no fault of it. With a time-out it is not for long.
        return ("CRASHES", "none") if job.sigkill_on_stop and job.timeout is None else ()

    # Workers

    def startup(self, queue):
        """Takes back what workers hold that this configuration does not have (any more). May run on all machines at once."""
        names = [self._worker(number) for number in get_worker_numbers(queue)]
        self._recover(queue, "EXCEPT", len(names), *names, "UNCOUNTED")

    def dequeue(self, queue, worker_num, timeout):
        name = self._worker(worker_num)
        if (queue, worker_num) not in self.known:
            # What a killed process held that had this number.
            self._recover(queue, "WORKERS", 1, name)
            self.known.add((queue, worker_num))
        block = min(timeout or LONGEST_BLOCK, LONGEST_BLOCK)
        try:
            claimed = self._say("RQ.CLAIM", self._key(queue), name, "BLOCK", int(block * 1000), "LEASE", self.lease)
        except redis.ResponseError as error:
            if str(error).startswith(("UNBLOCKED", "TRYAGAIN")):
                return None
            raise
        if not claimed:
            return None
        [[job_id, token, payload, _delivery]] = claimed
        if self.heartbeat is None:
            self.heartbeat = Heartbeat(self.client, self.lease)
            self.heartbeat.start()
        self.heartbeat.held[token] = self._key(queue), name, job_id
        job = Job.from_json(payload.decode())
        job.rq_delivery = job_id, token
        return job

    def processed_job(self, queue, worker_num, job):
        job_id, token = job.rq_delivery
        error = getattr(job, "rq_error", None)
        try:
            if error is None:
                self._say("RQ.ACK", self._key(queue), job_id, token)
            else:
                self._say("RQ.FAIL", self._key(queue), job_id, token, "ERROR", error)
        except redis.ResponseError as problem:
            if not str(problem).startswith(("STALE", "NOJOB", "NOQUEUE")):
                raise
            log.warning("%s: %s", job, problem)  # it was taken from this worker, so another does it
        finally:
            self.heartbeat.held.pop(token, None)

    # Operators

    def length(self, queue):
        stats = self._stats(queue)
        return stats.get(b"ready", 0) + stats.get(b"delayed", 0)

    def pause(self, queue, until):
        left = until - datetime.datetime.now(datetime.timezone.utc)
        self._say("RQ.PAUSE", self._key(queue), "FOR", max(1, int(left.total_seconds() * 1000)))

    def resume(self, queue):
        self._say("RQ.RESUME", self._key(queue))

    def is_paused(self, queue):
        return bool(self._stats(queue).get(b"paused"))

    def clear(self, queue):
        for state in ("ready", "delayed"):
            remaining = 1
            while remaining:
                _purged, remaining = self._say("RQ.PURGE", self._key(queue), state, "COUNT", AT_ONCE)

    def deduplicate(self, queue, *, progress_logger=NULL_PROGRESS_LOGGER):
        """Cancels waiting jobs that equal one before them. Gives how many waited before and after."""
        progress_logger.info("Reading the queue")
        ids = self._waiting(queue)
        seen, doubles = set(), []
        for job_id, payload in zip(progress_logger.progress(ids), self._payloads(queue, ids)):
            if payload is None:
                continue  # it has ended since
            key = identity(Job.from_json(payload.decode()))
            if key in seen:
                doubles.append(job_id)
            seen.add(key)
        if doubles:
            progress_logger.info("Cancelling duplicates")
            for some in progress_logger.progress(list(parts(doubles))):
                self._say("RQ.CANCEL", self._key(queue), *some)
        return len(ids), self.length(queue)

    def _waiting(self, queue):
        """Ids of the waiting jobs, as they will be claimed."""
        ids = []
        for state in ("ready", "delayed"):
            cursor = b"0"
            while True:
                cursor, jobs = self._say("RQ.LIST", self._key(queue), state, "CURSOR", cursor, "COUNT", AT_ONCE)
                ids += [pairs(job)[b"id"] for job in jobs]
                if cursor == b"0":
                    break
        return ids

    def _payloads(self, queue, ids):
        for some in parts(ids):
            with self.client.pipeline(transaction=False) as calls:
                for job_id in some:
                    calls.execute_command("RQ.JOB", self._key(queue), job_id)
                for job in calls.execute():
                    yield None if job is None else pairs(job)[b"payload"]

    # Below

    def _recover(self, queue, *whose):
        remaining = 1
        while remaining:
            taken, remaining, _by_worker = self._say("RQ.RECOVER", self._key(queue), *whose, "COUNT", AT_ONCE)
            if taken:
                log.info("%s: %d jobs taken back", queue, taken)

    def _say(self, *words):
        """For what may be said twice: asks until there is an answer, for as long as the lease of a job."""
        end = time.monotonic() + self.lease / 1000
        while True:
            try:
                return self.client.execute_command(*words)
            except (redis.ConnectionError, redis.TimeoutError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)

    def _stats(self, queue):
        try:
            return pairs(self._say("RQ.STATS", self._key(queue)))
        except redis.ResponseError as error:
            if str(error).startswith("NOQUEUE"):
                return {}
            raise

    @staticmethod
    def _key(queue):
        """Another than that of the package's own backends, so that these can be drained beside."""
        return f"{app_settings.REDIS_PREFIX}:rq:{queue}" if app_settings.REDIS_PREFIX else f"rq:{queue}"

    @staticmethod
    def _worker(number):
        return f"worker-{number}"


class Heartbeat(threading.Thread):
    """Extends the leases of what this process holds."""

    def __init__(self, client, lease):
        super().__init__(daemon=True, name="rq-heartbeat")
        self.client, self.lease = client, lease
        self.held = {}  # token: (key, worker, job id)

    def run(self):
        while True:
            time.sleep(self.lease / 3000)
            for token, (key, worker, job_id) in list(self.held.items()):
                try:
                    if self.client.execute_command("RQ.EXTEND", key, worker, "LEASE", self.lease, job_id, token) == [b"lost"]:
                        log.warning("%s is no longer this worker's", job_id.decode())
                        self.held.pop(token, None)
                except redis.RedisError:
                    pass  # the next may get through


class RetryMiddleware:
    """Remembers the error of a job for `processed_job`."""

    def process_exception(self, job, time_taken, kind, error, trace):
        job.rq_error = "".join(traceback.format_exception_only(kind, error)).strip()


def identity(job):
    """Equal for jobs that do the same, whenever they were made."""
    return hashlib.sha256(job.identity_without_created().encode()).hexdigest()[:32]


def pairs(reply):
    return dict(zip(reply[::2], reply[1::2]))


def parts(items):
    return (items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE))
