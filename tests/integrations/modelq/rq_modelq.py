"""ModelQ on redis-rq. In an application `from modelq import ModelQ` becomes `from rq_modelq import ModelQ`; nothing else changes.

Decorators, middleware, the command line and the REST API are those of ModelQ. What it keeps in lists, sets and keys of its own
is here a job: each task has a queue, `modelq:<task>`, which is one key, and a worker claims from the queues of its own tasks.
The server holds leases, delays, retries, results and their expiry; nothing here scans, and nothing asks twice for what has not
changed. Needs ModelQ 1.0.19, and a server with the module.
"""

import atexit
import functools
import heapq
import json
import logging
import os
import platform
import random
import socket
import sys
import threading
import time
import traceback
import uuid

import modelq
import redis
from modelq.app.base import get_system_info
from modelq.app.redis_retry import _RedisWithRetry
from modelq.app.tasks import Task as PlainTask
from modelq.exceptions import RetryTaskException, TaskProcessingError, TaskTimeoutError
from pydantic import BaseModel, ValidationError

logger = logging.getLogger("modelq.rq")

LOST = (redis.ConnectionError, redis.TimeoutError)
# What ModelQ calls the states of a job, as far as the state alone tells.
STATUS = {"delayed": "queued", "ready": "queued", "active": "processing", "done": "completed", "dead": "failed", "cancelled": "cancelled"}
STATES = {"queued": ["ready", "delayed"], "processing": ["active"], "completed": ["done"], "failed": ["dead"], "expired": ["dead"],
          "cancelled": ["cancelled"]}  # fmt: skip
AGAIN = ("UNBLOCKED", "TRYAGAIN")  # a call that waited was sent away
FINAL = ("done", "dead", "cancelled")
UNKNOWN = "Task is not known, or not any more"
ERROR_BYTES = 60_000  # of an error text the server keeps 64 KiB


class Gone(Exception):
    """Nobody wants the result of this run any more: cancelled, or lost to another worker."""


def ms(seconds):
    return max(1, int(seconds * 1000))


def text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def as_map(reply):
    """A map as RESP2 sends it; its values as they came."""
    return {text(key): value for key, value in zip(reply[::2], reply[1::2])}


def parsed(value):
    """What a worker of ours wrote, as a dict; anything else is {}."""
    try:
        found = json.loads(value) if value else {}
        return found if isinstance(found, dict) else {}
    except ValueError:
        return {}


class Rq:
    """Says commands over the application's client, until there is an answer: all that is said here may be said twice."""

    def __init__(self, client):
        self.client = getattr(client, "_client", client)  # ModelQ wraps it
        limit = self.client.connection_pool.connection_kwargs.get("socket_timeout")
        self.longest = min(modelq.ModelQ.BLPOP_TIMEOUT, limit / 2 if limit else 3600)  # seconds of one waiting call

    def __call__(self, *words):
        return self.insist(lambda: self.client.execute_command(*words))

    def all(self, calls, atomic=False):
        """The replies to several commands, sent at once."""

        def send():
            pipe = self.client.pipeline(transaction=atomic)
            for words in calls:
                pipe.execute_command(*words)
            return pipe.execute()

        return self.insist(send) if calls else []

    def insist(self, call):
        while True:
            try:
                return call()
            except LOST as error:
                logger.warning("no answer (%s), asking again", error)
                time.sleep(random.uniform(0.5, 1.5))
            except redis.ResponseError as error:
                if not str(error).startswith(AGAIN):
                    raise

    def wait(self, words, deadline):
        """A call that waits, up to a `deadline` of time.monotonic(). None in place of a reply: the time is up."""
        left = deadline - time.monotonic()
        return None if left <= 0 else (self(*words, "BLOCK", ms(min(left, self.longest))),)


def failure(job_error, reason=None):
    """Why a task failed, from what its job tells."""
    known = parsed(job_error).get("message")
    if known is None:
        known = text(job_error) or {
            "crashes": "Its workers died, or were lost, too often",
            "deadline": "No worker took it in time",
        }.get(text(reason), "Task failed without an error message")
    return known


def progress_of(rq, queue, task_id):
    reply = rq("RQ.RESULT", queue, task_id)
    if reply is None or not reply[1]:
        return None
    found = parsed(reply[1])
    return found.get("progress") if text(reply[0]) in FINAL else found


class Task(PlainTask):
    """What the caller of a task holds in hand."""

    queue_prefix = "modelq"
    run = None  # of the output that get_stream reads: counts up when a task that was worked on begins anew

    @property
    def queue(self):
        return f"{self.queue_prefix}:{self.task_name}"

    def get_result(self, redis_client, timeout=None, returns=None, modelq_ref=None):
        rq, deadline = Rq(redis_client), time.monotonic() + (timeout or self.timeout)
        state = None
        while state not in FINAL:
            answer = rq.wait(("RQ.RESULT", self.queue, self.task_id), deadline)
            if answer is None:
                raise TaskTimeoutError(self.task_id)
            found = answer[0] or rq("RQ.RESULT", self.queue, self.task_id)  # nil: the time of the call is up, or there is no such task
            if found is None:
                raise TaskProcessingError(self.task_name, UNKNOWN)
            state, value = text(found[0]), found[1]
        self.status = STATUS[state]
        kept = parsed(value)
        self._absorb_timestamps(kept)
        if state == "cancelled":
            raise TaskProcessingError(self.task_name, "Task was cancelled")
        if state == "dead":
            self.result = self._why_dead(rq, value)
            raise TaskProcessingError(self.task_name, self.result)
        self.result = kept.get("result")
        if returns is None and modelq_ref is not None:
            returns = getattr(getattr(modelq_ref, self.task_name, None), "_mq_returns", None)
        return self.result if returns is None else self._shaped(returns)

    def _why_dead(self, rq, error):
        job = None if error else rq("RQ.JOB", self.queue, self.task_id)
        return failure(error, as_map(job).get("reason") if job else None)

    def _shaped(self, returns):
        data = self.result
        try:
            if isinstance(data, str):
                data = json.loads(data)
        except ValueError:
            pass
        try:
            return returns(**data) if isinstance(data, dict) else returns.model_validate(data)
        except Exception as error:
            raise TaskProcessingError(self.task_name, f"Result validation failed: {error}") from error

    def get_stream(self, redis_client, timeout=300, on_restart=None):
        """What the task yields, from its start, also to those who come late. If its worker is lost, or a retry is due, the task
        starts anew, and so does its output: `combined_result` is empty again, `run` counts up, and `on_restart(run)` is called
        before the first chunk of the new run."""
        rq, deadline, position = Rq(redis_client), time.monotonic() + timeout, "0"
        self.combined_result, ended = "", None
        while ended is None:
            answer = rq.wait(("RQ.READ", self.queue, self.task_id, "FROM", position), deadline)
            if answer is None:
                raise TaskTimeoutError(self.task_id)
            if answer[0] is None:
                raise TaskProcessingError(self.task_name, UNKNOWN)
            position, chunks, run, ended = answer[0]
            if run != self.run:
                if self.combined_result:
                    logger.warning("task %s starts anew: run %d", self.task_id, run)
                    self.combined_result = ""
                    if on_restart is not None:
                        on_restart(run)
                self.run = run
            for chunk in chunks:
                value = json.loads(chunk)
                self.combined_result += value if isinstance(value, str) else json.dumps(value)
                yield value
        self.status = STATUS[text(ended)]
        if self.status == "completed":
            self.result = self.combined_result
        elif self.status == "failed":
            reply = rq("RQ.RESULT", self.queue, self.task_id)
            raise TaskProcessingError(self.task_name, self._why_dead(rq, reply[1]) if reply else UNKNOWN)

    def get_progress(self, redis_client):
        return progress_of(Rq(redis_client), self.queue, self.task_id)

    def is_cancelled(self, redis_client):
        return is_cancelled(Rq(redis_client)("RQ.JOB", self.queue, self.task_id))


def is_cancelled(job):
    job = as_map(job or [])
    return text(job.get("state")) == "cancelled" or bool(job.get("cancelling"))


class Run:
    """One delivery of a job, as the process that works on it knows it."""

    def __init__(self, rq, worker, lease, queue, job, token, delivery):
        self.rq, self.worker, self.lease = rq, worker, lease
        self.queue, self.job, self.token, self.delivery = text(queue), text(job), token, delivery
        self.gone = threading.Event()  # cancelled, lost, or over: what still works on it may stop
        self.progress, self.emitted = None, 0

    def heed(self, reply):
        if text(reply) != "ok":
            self.gone.set()

    def beat(self):
        self.heed(self.rq("RQ.EXTEND", self.queue, self.worker, "LEASE", ms(self.lease), self.job, self.token)[0])

    def is_gone(self):
        if not self.gone.is_set():
            self.beat()
        return self.gone.is_set()

    def say(self, *words):
        """A command about this delivery; None if it is another's, or nobody's, by now."""
        command, *rest = words
        try:
            return self.rq(command, self.queue, self.job, self.token, *rest)
        except redis.ResponseError as error:
            if str(error).split(" ")[0] not in ("STALE", "NOJOB", "NOQUEUE"):
                raise
            logger.warning("task %s is no longer ours: %s", self.job, error)
            self.gone.set()
            return None

    def report(self, progress):
        if not self.gone.is_set():
            self.progress = progress
            self.heed(self.say("RQ.PROGRESS", json.dumps(progress)))

    def emit(self, chunk):
        """Appends to the output. Said twice it would be there twice: when no answer comes, the output itself tells."""
        while not self.gone.is_set():
            try:
                reply = self.rq.client.execute_command("RQ.EMIT", self.queue, self.job, self.token, chunk)
                self.heed(reply)
            except LOST as error:
                logger.warning("no answer (%s), looking whether it got through", error)
                found = self.rq("RQ.READ", self.queue, self.job, "FROM", f"{self.delivery}-{self.emitted}", "COUNT", 1)
                if found is None or found[2] != self.delivery:
                    break
                if not found[1]:
                    continue
            except redis.ResponseError as error:
                if not str(error).startswith(("STALE", "NOJOB", "NOQUEUE")):
                    raise
                break
            self.emitted += 1
            if not self.gone.is_set():
                return
        self.gone.set()
        raise Gone


class Client(_RedisWithRetry):
    """The application's client. `modelq serve-api` reads results from a key, which is answered from the queue."""

    def __init__(self, client, owner):
        super().__init__(getattr(client, "_client", client))
        self._owner = owner

    def get(self, name):
        key = text(name)
        if not key.startswith("task_result:"):
            return self.__getattr__("get")(name)
        details = self._owner.get_task_details(key.split(":", 1)[1])
        return json.dumps(details).encode() if details and details["status"] in ("completed", "failed") else None


class ModelQ(modelq.ModelQ):
    """`queue_prefix`: what the names of the queues begin with (in braces for a cluster: "{modelq}"). `requeue_threshold`: seconds
    without a heartbeat after which a task goes to another worker."""

    LEASE = 60  # seconds
    MAX_OUTPUT = 64 * 1024 * 1024  # bytes that a task may yield

    def __init__(self, *args, queue_prefix="modelq", **kwargs):
        super().__init__(*args, **kwargs)
        self.redis_client = Client(self.redis_client, self)
        self._rq = Rq(self.redis_client)
        self._prefix, self._lease = queue_prefix, self.requeue_threshold or self.LEASE
        self._known, self._prepared = [], set()  # names of queues
        self._runs, self._local, self._stopping = {}, threading.local(), threading.Event()
        self._instance = f"{self.server_id}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._place = None  # this process in the registry of workers: the id and token of a job that it holds, and its tasks

    # Tasks are made and enqueued.

    def task(self, task_class=Task, timeout=None, stream=False, retries=0, schema=None, returns=None):
        def decorator(function):
            function._mq_schema, function._mq_returns = schema, returns
            name = function.__name__

            @functools.wraps(function)
            def enqueue(*args, **kwargs):
                custom, extra = kwargs.pop("_task_id", None), kwargs.pop("additional_params", None)
                data = {"args": args, "kwargs": kwargs} if schema is None else self._validated(name, schema, args, kwargs)
                payload = {"data": data, "timeout": timeout, "stream": stream, "retries": retries}
                task = task_class(task_name=name, payload=payload, task_id=custom, additional_params=extra)
                task.queue_prefix, task.stream = self._prefix, stream
                task.created_at = task.queued_at = time.time()
                self.enqueue_task(task.to_dict(), payload=payload)
                return task

            setattr(self, name, function)
            self.allowed_tasks.add(name)
            return enqueue

        return decorator

    @staticmethod
    def _validated(name, schema, args, kwargs):
        try:
            model = args[0] if len(args) == 1 and isinstance(args[0], schema) else schema(*args, **kwargs)
        except ValidationError as error:
            raise TaskProcessingError(name, f"Input validation failed: {error}") from error
        return model.model_dump(mode="json")

    def enqueue_task(self, task_data, payload, delay_seconds=0):
        self.check_middleware("before_enqueue")
        left_out = ("task_id", "task_name", "status", "result", "started_at", "finished_at", "stream")
        kept = {key: value for key, value in task_data.items() if key not in left_out}
        words = ["RQ.ENQUEUE", self._queue(task_data["task_name"]), json.dumps(kept), "ID", task_data["task_id"], "REPLACE",
                 "DEADLINE", ms(delay_seconds + self.task_ttl)]  # fmt: skip
        if delay_seconds:
            words += ["DELAY", ms(delay_seconds)]
        said_before = False
        while True:
            try:
                self._rq.client.execute_command(*words)
                break
            except LOST as error:
                logger.warning("no answer (%s), asking again", error)
                said_before = True
                time.sleep(random.uniform(0.5, 1.5))
            except redis.ResponseError as error:
                exists = str(error).startswith("EXISTS")
                if exists and said_before:
                    break  # it had got through
                if exists:
                    state = STATUS.get(str(error).split()[1], "unfinished")
                    raise TaskProcessingError(task_data["task_name"], f"Task {task_data['task_id']} is {state}") from error
                raise
        self.check_middleware("after_enqueue")

    def enqueue_delayed_task(self, task_dict, delay_seconds):
        self.enqueue_task(task_dict, payload=task_dict["payload"], delay_seconds=delay_seconds)

    def _queue(self, task_name):
        return f"{self._prefix}:{task_name}"

    # Workers.

    def start_workers(self, no_of_workers=1):
        if any(thread.is_alive() for thread in self.worker_threads):
            return
        try:
            self.check_middleware("before_worker_boot")
        except Exception:
            if not self.inactive_if_worker_boot_fail:
                raise
            logger.exception("before_worker_boot failed: no task will be taken")
            self.worker_healthy = False
        self._stopping.clear()
        atexit.register(self.stop_workers)
        self.register_server()
        jobs = [self._beats, *(functools.partial(self._work, f"{self._instance}/{number}") for number in range(no_of_workers))]
        self.worker_threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        for thread in self.worker_threads:
            thread.start()

    def stop_workers(self, patience=0):
        """Takes no more tasks, waits `patience` seconds for those in work, and gives the others back, unharmed, to whoever is left.
        Is called when the process ends in good order."""
        atexit.unregister(self.stop_workers)
        if self._stopping.is_set() or not self.worker_threads:
            return
        self._stopping.set()
        self.check_middleware("before_worker_shutdown")
        deadline = time.monotonic() + patience
        while self._runs and time.monotonic() < deadline:
            time.sleep(0.01)
        for run in list(self._runs.values()):
            run.gone.set()
            run.rq("RQ.RELEASE", run.queue, run.job, run.token)
        if self._place is not None:
            self._rq("RQ.ACK", self._registry, self._place[0], self._place[1])
            self._place = None
        self.check_middleware("after_worker_shutdown")

    def _work(self, worker):
        self.check_middleware("after_worker_boot")
        turn = 0
        while not self._stopping.is_set():
            names = sorted(self.allowed_tasks)
            if not self.worker_healthy or not names:
                self._stopping.wait(1)
                continue
            turn = (turn + 1) % len(names)  # so that no task is always the last to be looked at
            queues = [self._queue(name) for name in names[turn:] + names[:turn]]
            try:
                self._prepare(queues)
                reply = self._rq("RQ.MCLAIM", len(queues), *queues, worker, "BLOCK", ms(self._rq.longest), "LEASE", ms(self._lease))
                if reply is not None:
                    job, token, payload, delivery = reply[1][0]
                    self._take(Run(self._rq, worker, self._lease, reply[0], job, token, delivery), payload)
            except Exception:
                logger.exception("a worker goes on after this")
                self._stopping.wait(1)

    def _prepare(self, queues):
        """The settings of our queues, once per process: how often a task is tried is the worker's decision."""
        keep = ms(self.task_history_retention)
        new = [queue for queue in queues if queue not in self._prepared]
        self._rq.all([("RQ.QUEUE.SET", queue, "LEASE", ms(self._lease), "ATTEMPTS", "none", "TTL", keep, "RESULTTTL", keep, "DEADTTL", keep,
                       "KEEPDEAD", "none", "MAXOUTPUT", self.MAX_OUTPUT) for queue in new])  # fmt: skip
        self._prepared.update(new)

    def _beats(self):
        """A sign of life for all that this process holds, three times per lease."""
        while not self._stopping.wait(self._lease / 3):
            for run in list(self._runs.values()):
                with self._guarded_iteration("heartbeat"):
                    run.beat()
            with self._guarded_iteration("registry"):
                self.heartbeat()

    def _take(self, run, payload):
        if self._stopping.is_set():  # it came while we waited
            self._rq("RQ.RELEASE", run.queue, run.job, run.token)
            return
        name = run.queue[len(self._prefix) + 1 :]
        kept = parsed(payload)
        extra = {key: value for key, value in kept.items() if key not in ("payload", "created_at", "queued_at")}
        task = Task(name, kept.get("payload") or {}, task_id=run.job, additional_params=extra)
        task.created_at, task.queued_at = kept.get("created_at"), kept.get("queued_at")
        task.status, task.started_at = "processing", time.time()
        self._runs[run.job] = run
        try:
            self._perform(run, task)
        except Gone:
            self._rq("RQ.RELEASE", run.queue, run.job, run.token)  # ends a cancelled job, changes nothing about a lost one
        except BaseException as error:  # also SystemExit: a thread that ended here would hold its job for ever
            self._failed(run, task, error)
        finally:
            self._runs.pop(run.job, None)
            run.gone.set()

    def _perform(self, run, task):
        function = getattr(self, task.task_name)
        args, kwargs = self._arguments(run, task, function)
        if task.payload.get("stream"):
            output = self._as(run, function)(*args, **kwargs)
            try:
                self._local.run = run
                for value in output:
                    run.emit(json.dumps(value, default=str))
            finally:
                self._local.run = None
                output.close()
            task.result = None
        else:
            result = self._with_timeout(run, function, task.payload.get("timeout"), args, kwargs)
            returns = function._mq_returns
            if returns is not None and not isinstance(result, returns):
                try:
                    result = returns(**(result if isinstance(result, dict) else result.__dict__))
                except Exception as error:
                    raise TaskProcessingError(task.task_name, f"Output validation failed: {error}") from error
            if isinstance(result, BaseModel):
                result = result.model_dump(mode="json")
            task.result = result if isinstance(result, (dict, list, int, float, bool)) else str(result)
        task.finished_at = time.time()
        run.say("RQ.ACK", "RESULT", json.dumps({"result": task.result, **self._beside(run, task)}))

    @staticmethod
    def _beside(run, task):
        """What is kept beside a result or an error."""
        stamps = {key: getattr(task, key) for key in ("created_at", "queued_at", "started_at", "finished_at")}
        return {**stamps, "progress": run.progress}

    @staticmethod
    def _arguments(run, task, function):
        data = task.payload.get("data") or {}
        if function._mq_schema is not None:
            try:
                return (function._mq_schema(**(json.loads(data) if isinstance(data, str) else data)),), {}
            except Exception as error:
                raise TaskProcessingError(task.task_name, f"Input validation failed: {error}") from error
        args, kwargs = tuple(data.get("args", ())), dict(data.get("kwargs", {}))
        if len(args) == 1 and isinstance(args[0], dict):
            args = ({**args[0], "_task_id": run.job},)
        return args, kwargs

    def _as(self, run, function):
        """The function, in whose thread is known which run it works for."""

        def call(*args, **kwargs):
            self._local.run = run
            try:
                return function(*args, **kwargs)
            finally:
                self._local.run = None

        return call

    def _with_timeout(self, run, function, timeout, args, kwargs):
        """Nothing can end a thread from outside: after its time, the function is left alone, and is told so when it asks."""
        if not timeout:
            return self._as(run, function)(*args, **kwargs)
        outcome = {}

        def target():
            try:
                outcome["result"] = self._as(run, function)(*args, **kwargs)
            except BaseException as error:
                outcome["error"] = error

        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        thread.join(timeout)
        if "error" in outcome:
            raise outcome["error"]
        if "result" not in outcome:
            raise TaskTimeoutError(run.job)
        return outcome["result"]

    def _failed(self, run, task, error):
        """Two budgets, as in ModelQ: `retries` of the task, and `retry_task_max_attempts` for RetryTaskException. The queue counts
        failures; how many of them were asked for is kept with the last error."""
        attempts = asked = 0
        if run.delivery > 1:
            job = as_map(self._rq("RQ.JOB", run.queue, run.job) or [])
            attempts, asked = job.get("attempts") or 0, parsed(job.get("error")).get("asked", 0)
        wants_retry, message = isinstance(error, RetryTaskException), str(error)
        if wants_retry:
            asked += 1
            again = asked <= self.retry_task_max_attempts
            message = message if again else f"Retry limit reached after {self.retry_task_max_attempts} attempt(s): {message}"
        else:
            again = attempts - asked + 1 <= task.payload.get("retries", 0)
        task.status, task.result, task.finished_at = "failed", message, time.time()
        frames = traceback.extract_tb(error.__traceback__)
        told = {"message": message, "type": type(error).__name__, "file": frames[-1].filename if frames else None,
                "line": frames[-1].lineno if frames else None, "asked": asked, **self._beside(run, task),
                "trace": "".join(traceback.format_exception(type(error), error, error.__traceback__))}  # fmt: skip
        verdict = ("RETRY", int(self.delay_seconds * 1000)) if again else ("DEAD",)
        run.say("RQ.FAIL", "ERROR", fitting(told), *verdict)
        if not (wants_retry and again):
            self._tell(task, error)

    def _tell(self, task, error):
        """Everybody who wants to know of a failure."""
        try:
            self.log_task_error_to_file(task, error)
            if isinstance(error, TaskTimeoutError):
                self.check_middleware("on_timeout", task=task, error=error)
            self.check_middleware("on_error", task=task, error=error)
            self.post_error_to_webhook(task, error)
            if self.sentry_enabled and not self._should_ignore_sentry_exception(error) and not isinstance(error, RetryTaskException):
                modelq.app.base.capture_task_exception(
                    exc=error, task_id=task.task_id, task_name=task.task_name, payload=task.payload, worker_id=self.server_id,
                    exc_info=(type(error), error, error.__traceback__))  # fmt: skip
        except Exception:
            logger.exception("a failure could not be told to everybody")

    # Who works: each process holds a job in a queue that is nothing but the list of those who live. It lapses with its process.

    @property
    def _registry(self):
        return f"{self._prefix}.workers"

    def register_server(self):
        if not hasattr(self, "_rq"):
            return  # being made: a process that only enqueues is no worker
        about = {"worker_id": self.server_id, "instance": self._instance, "hostname": socket.gethostname(),
                 "os": f"{platform.system()} {platform.release()}", "python_version": platform.python_version(),
                 "allowed_tasks": sorted(self.allowed_tasks), "system_info": get_system_info()}  # fmt: skip
        if self._place is not None:
            self._rq("RQ.ACK", self._registry, self._place[0], self._place[1])
        lease = ms(self._lease)
        replies = self._rq.all([
            ("RQ.QUEUE.SET", self._registry, "LEASE", lease, "CRASHES", 0, "TTL", 0, "DEADTTL", 0),
            ("RQ.ENQUEUE", self._registry, json.dumps(about)),
            ("RQ.CLAIM", self._registry, self._instance),
        ], atomic=True)  # fmt: skip
        self._place = (*replies[2][0][:2], set(self.allowed_tasks))

    def heartbeat(self):
        if self._place is None:
            return self.register_server()
        job, token, tasks = self._place
        held = self._rq("RQ.EXTEND", self._registry, self._instance, "LEASE", ms(self._lease), job, token) == [b"ok"]
        if not held or tasks != self.allowed_tasks:
            self._place = self._place if held else None
            self.register_server()

    def get_workers(self):
        listed = self._listed(self._registry, "active")
        jobs = [as_map(job) for job in self._rq.all([("RQ.JOB", self._registry, job["id"]) for job in listed]) if job]
        busy = {text(worker["name"]) for queue in self._queues() for worker in self._pages("RQ.WORKERS", queue) if worker["active"]}
        workers = {}
        for job in jobs:
            about = parsed(job["payload"])
            name, instance = about.get("worker_id"), about.pop("instance", "")
            is_busy = any(worker.startswith(f"{instance}/") for worker in busy)
            beat = ((job.get("lease-until") or 0) - ms(self._lease)) / 1000
            workers[name] = {**about, "status": "busy" if is_busy else "idle", "last_heartbeat": beat, "php_version": None}
        return workers

    def get_worker(self, worker_id):
        return self.get_workers().get(worker_id)

    def get_registered_server_ids(self):
        return list(self.get_workers())

    # Looking at tasks.

    def _queues(self):
        """All queues of the application, from the server's index of queues."""
        cursor = 0
        while True:
            cursor, names = self._rq("RQ.QUEUES", "CURSOR", cursor, "MATCH", f"{self._prefix}:*", "COUNT", 1000)
            self._known.extend(name for name in map(text, names) if name not in self._known)
            if text(cursor) == "0":
                return list(self._known)

    def _find(self, task_id, command="RQ.JOB"):
        """Asks for a task by its id alone: the queues of our own tasks first, then those of others."""
        asked = [self._queue(name) for name in sorted(self.allowed_tasks)]
        asked += [queue for queue in self._known if queue not in asked]
        for queues in (lambda: asked, lambda: [queue for queue in self._queues() if queue not in asked]):
            names = queues()
            for queue, reply in zip(names, self._rq.all([(command, queue, task_id) for queue in names])):
                if reply not in (None, [None]):
                    return queue, reply
        return None, None

    def _pages(self, *words):
        """The maps that a listing shows, page by page."""
        cursor = "0"
        while True:
            cursor, found = self._rq(*words, "CURSOR", cursor, "COUNT", 1000)
            yield from map(as_map, found)
            if text(cursor) == "0":
                return

    def _listed(self, queue, state):
        for job in self._pages("RQ.LIST", queue, state):
            job["id"], job["queue"] = text(job["id"]), queue
            job["status"] = "expired" if text(job.get("reason")) == "deadline" else STATUS[state]
            yield job

    def get_all_queued_tasks(self):
        """Without their payloads, which get_task_details has."""
        tasks = [job for queue in self._queues() for state in STATES["queued"] for job in self._listed(queue, state)]
        return [{"task_id": job["id"], "task_name": job["queue"][len(self._prefix) + 1 :], "status": "queued",
                 "created_at": job["enqueued"] / 1000, "queued_at": job["enqueued"] / 1000} for job in tasks]  # fmt: skip

    def get_processing_tasks(self):
        return self.get_task_history(limit=sys.maxsize, status="processing")

    def get_task_status(self, task_id):
        _, reply = self._find(task_id, "RQ.RESULT")
        return STATUS[text(reply[0])] if reply else None

    def get_task_details(self, task_id):
        queue, reply = self._find(task_id)
        return self._details(queue, reply) if reply else None

    def _details(self, queue, reply):
        job = as_map(reply)
        kept, state, error = parsed(job["payload"]), text(job["state"]), parsed(job.get("error"))
        done = parsed(job.get("result"))

        def at(key):
            return job[key] / 1000 if job.get(key) is not None else None

        details = {**kept, "task_id": text(job["id"]), "task_name": queue[len(self._prefix) + 1 :], "status": STATUS[state],
                   "result": done.get("result"), "created_at": kept.get("created_at", at("enqueued")), "queued_at": at("enqueued"),
                   "started_at": at("claimed"), "finished_at": at("ended"),
                   "stream": bool(kept.get("payload", {}).get("stream"))}  # fmt: skip
        if job.get("cancelling"):
            details["status"] = "cancelled"
        if state == "dead":
            details["status"] = "expired" if text(job.get("reason")) == "deadline" else "failed"
            details["result"] = failure(job.get("error"), job.get("reason"))
        if state == "dead" or error:
            details["error"] = {"type": None, "file": None, "line": None, "trace": None, **error,
                                "message": failure(job.get("error"), job.get("reason"))}  # fmt: skip
        return details

    def get_task_history(self, limit=100, offset=0, status=None, task_name=None):
        """The newest first. Tasks are listed without payloads and results; only those that are shown are read."""
        queues = self._queues() if task_name is None else [self._queue(task_name)]
        states = STATUS if status is None else STATES.get(status, [])
        tasks = (job for queue in queues for state in states for job in self._listed(queue, state) if status in (None, job["status"]))
        wanted = heapq.nlargest(min(limit + offset, sys.maxsize), tasks, key=lambda job: job["enqueued"])[offset:]
        found = []
        for first in range(0, len(wanted), 10):  # a task may have megabytes
            part = wanted[first : first + 10]
            replies = self._rq.all([("RQ.JOB", job["queue"], job["id"]) for job in part])
            found += [self._details(job["queue"], reply) for job, reply in zip(part, replies) if reply]
        return found

    def _counts(self):
        queues = self._queues()
        replies = self._rq.all([("RQ.STATS", queue) for queue in queues])
        return [(queue[len(self._prefix) + 1 :], as_map(reply)) for queue, reply in zip(queues, replies)]

    def get_task_stats(self):
        stats = {"total": 0, "by_status": {}, "by_task_name": {}, "failed_tasks": []}
        for name, counts in self._counts():
            total = sum(counts[state] for state in STATUS)
            stats["total"] += total
            stats["by_task_name"][name] = {"total": total, "completed": counts["done"], "failed": counts["dead"]}
            for state, status in STATUS.items():
                if counts[state]:
                    stats["by_status"][status] = stats["by_status"].get(status, 0) + counts[state]
        stats["failed_tasks"] = [{"task_id": task["task_id"], "task_name": task["task_name"], "error": task["result"]}
                                 for task in self.get_failed_tasks(limit=10)]  # fmt: skip
        return stats

    def get_task_history_count(self):
        return sum(counts[state] for _, counts in self._counts() for state in STATUS)

    def clear_task_history(self, older_than_seconds=None):
        """Final tasks that ended so long ago. The first to go are the first that ended, since all are kept equally long."""
        age = self.task_history_retention if older_than_seconds is None else older_than_seconds
        cutoff, removed = (time.time() - age) * 1000, 0
        for queue in self._queues():
            for state in FINAL:
                old = sum(1 for job in self._listed(queue, state) if job["ended"] <= cutoff)
                while old > 0:
                    purged, left = self._rq("RQ.PURGE", queue, state, "COUNT", min(old, 1000))
                    removed, old = removed + purged, min(old - purged, left) if purged else 0
        return removed

    # Cancelling, removing, progress.

    def cancel_task(self, task_id):
        _, reply = self._find(task_id, "RQ.CANCEL")
        return reply is not None and text(reply[0]) in ("cancelled", "cancelling")

    def is_task_cancelled(self, task_id):
        run = self._run_of(task_id)
        return run.is_gone() if run is not None else is_cancelled(self._find(task_id)[1])

    def remove_task_from_queue(self, task_id):
        """Only if it waits: it is put off first, which a task in work is not."""
        queue, _ = self._find(task_id, "RQ.RESULT")
        try:
            self._rq("RQ.RESCHEDULE", queue or self._registry, task_id, "DELAY", 60_000)
        except redis.ResponseError:
            return False
        return text(self._rq("RQ.CANCEL", queue, task_id)[0]) == "cancelled"

    def delete_queue(self):
        for queue in self._queues():
            for state in STATES["queued"]:
                while all(self._rq("RQ.PURGE", queue, state)):
                    pass

    def current_task_id(self):
        """Inside a task: its id."""
        run = getattr(self._local, "run", None)
        return run.job if run is not None else None

    def _run_of(self, task_id):
        run = getattr(self._local, "run", None)
        return run if run is not None and task_id in (None, run.job) else self._runs.get(task_id)

    def report_progress(self, task_id, progress, message=None):
        run = self._run_of(task_id)
        if run is None:
            logger.warning("progress of task %s is not told: this process does not work on it", task_id)
            return
        run.report({"progress": min(max(progress, 0.0), 1.0), "message": message, "updated_at": time.time()})

    def get_task_progress(self, task_id):
        queue, _ = self._find(task_id, "RQ.RESULT")
        return progress_of(self._rq, queue, task_id) if queue else None

    # What the server does by itself, and ModelQ has calls for: there is nothing to do.

    def _nothing(self, *_, **__):
        return 0

    cleanup_expired_tasks = prune_old_task_results = prune_inactive_servers = recover_abandoned_inflight_tasks = _nothing
    requeue_stuck_processing_tasks = requeue_inprogress_tasks = requeue_delayed_tasks = drain_inflight = update_server_status = _nothing


def fitting(told):
    """As JSON, the trace shortened from its beginning so that the server need not cut."""
    told["message"] = told["message"][:8000]
    while len((line := json.dumps(told)).encode()) > ERROR_BYTES:
        told["trace"] = told["trace"][len(told["trace"]) // 2 + 1 :]
        if not told["trace"]:
            told["message"] = told["message"][: len(told["message"]) // 2]
    return line
