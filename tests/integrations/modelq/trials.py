"""What ModelQ's own documentation promises, tried on the queue with real worker processes, which are started by ModelQ's own
command line. `application.py` is the application; this process is a client of it."""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

from common import PATIENCE, ROOT, Wrong, expect, expect_equal, free_port, until

HERE = os.path.dirname(os.path.abspath(__file__))
CLI = [sys.executable, "-m", "modelq.app.cli.main"]
STALE = 6  # seconds: the lease of a task
MEGABYTES = 7 * 1024 * 1024

# What is said to the server besides the commands of the module: nothing that reads or writes a key. The module itself asks for settings.
PLAIN = {"info", "ping", "multi", "exec", "config|get", "dbsize", "unlink"}


class Trials:
    def __init__(self, stage):
        self.stage, self.server = stage, stage.server("--appendonly", "yes")
        self.folder = os.path.join(stage.folder, "marks")
        os.mkdir(self.folder)
        self.webhook = Webhook()
        self.environment = {
            "PORT": str(self.server.port), "FOLDER": self.folder, "ON": "rq", "STALE_AFTER": str(STALE), "WEBHOOK": self.webhook.url,
            "PYTHONPATH": os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip
        os.environ.update(self.environment)
        os.chdir(stage.folder)  # ModelQ writes its logs to where it is
        import application

        self.app, self.mq, self.redis = application, application.mq, application.mq.redis_client

    # What the trials share

    def process(self, name, count=2, **environment):
        return self.stage.start([*CLI, "run-workers", "application:mq", "--workers", str(count), "--log-level", "WARNING"],
                                environment={**self.environment, "SERVER_ID": name, **environment}, cwd=self.stage.folder)  # fmt: skip

    def workers(self, name, count=2, **environment):
        """A process of `modelq run-workers`, once it is registered."""
        process = self.process(name, count, **environment)
        until(f"{name} is registered", lambda: name in self.mq.get_workers())
        return process

    def cli(self, *words):
        log = f"cli-{'-'.join(words[:1])}-{time.monotonic_ns()}"
        process = self.stage.start([*CLI, *words], environment=self.environment, cwd=self.stage.folder, log=log)
        expect_equal(f"modelq {' '.join(words)}", process.wait(PATIENCE), 0)
        with open(os.path.join(self.stage.folder, log), encoding="utf-8") as file:
            return file.read()

    def lines(self, name):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read().splitlines()
        return []

    def touch(self, name):
        self.app.note(name, "")

    def state(self, task):
        return self.mq.get_task_status(task.task_id)

    def result(self, task, **how):
        return task.get_result(self.redis, timeout=PATIENCE, **how)

    def fails(self, what, call, *words):
        """The text of the error that a call must raise."""
        try:
            found = call()
        except Exception as error:
            for word in words:
                expect(f"{what}: {word!r} is in {error!r}", word in f"{type(error).__name__}: {error}")
            return str(error)
        raise Wrong(f"{what}: no error but {found!r}")

    # One for each part of ModelQ's documentation

    def basic_usage(self):
        task = self.app.add(2, 3)
        expect_equal("the sum", self.result(task), 5)
        expect_equal("its status", (task.status, self.state(task)), ("completed", "completed"))
        expect_equal("its timings", set(task.stage_timings()), {"queue_time", "run_time", "total_time"})
        expect_equal("None is told as ModelQ tells it", self.result(self.app.echo(None)), "None")
        expect_equal("a list", self.result(self.app.echo([1, {"a": "ü"}])), [1, {"a": "ü"}])
        extra = self.app.echo(1, additional_params={"customer": "ada"})
        self.result(extra)
        expect_equal("additional parameters", self.mq.get_task_details(extra.task_id)["customer"], "ada")
        late = self.app.held("patience")
        begin = time.monotonic()
        self.fails("a result that does not come", lambda: late.get_result(self.redis, timeout=1), "TaskTimeoutError")
        expect("it waited", time.monotonic() - begin > 0.9)
        self.touch("patience-go")
        self.result(late)

    def long_begins(self):
        """Something that takes longer than its lease, while all else goes on."""
        self.long = (self.app.held("long"), time.monotonic())

    def long_ends(self):
        task, begin = self.long
        until("it took longer than its lease", lambda: time.monotonic() - begin > STALE * 1.5)
        self.touch("long-go")
        expect_equal("its result", self.result(task), "long")
        job = self.server.map("RQ.JOB", "modelq:held", task.task_id)
        expect_equal("it was worked on once", (job[b"deliveries"], len(self.lines("long-runs"))), (1, 1))

    def many_at_once(self):
        tasks = [self.app.echo(i) for i in range(200)]
        expect_equal("all results", [self.result(task) for task in tasks], list(range(200)))

    def task_ids(self):
        task = self.app.held("order", _task_id="order-17")
        until("it runs", lambda: self.state(task) == "processing")
        expect_equal("its id", task.task_id, "order-17")
        expect_equal("its details", self.mq.get_task_details("order-17")["task_name"], "held")
        self.fails("the same id, while it is in work", lambda: self.app.held("order", _task_id="order-17"), "is processing")
        self.touch("order-go")
        self.result(task)
        expect_equal("the same id, once it is free", self.result(self.app.held("order", _task_id="order-17")), "order")
        expect_equal("unknown", (self.mq.get_task_status("nobody"), self.mq.get_task_details("nobody")), (None, None))
        ghost = self.app.add(1, 1)
        self.result(ghost)
        self.mq.clear_task_history(0)
        self.fails("a result that is gone", lambda: self.result(ghost), "not known")

    def retries(self):
        expect_equal("the third try", self.result(self.app.flaky("flaky-2", 2)), 3)
        first, second = map(float, self.lines("flaky-2")[:2])
        expect("delay_seconds lies between two tries", second - first >= 0.2)
        task = self.app.flaky("flaky-9", 9)
        self.fails("no try is left", lambda: self.result(task), "TaskProcessingError", "try 3 of flaky-9")
        expect_equal("1 and 2 retries", len(self.lines("flaky-9")), 3)
        error = self.mq.get_task_details(task.task_id)["error"]
        expect_equal("the error", (error["message"], error["type"]), ("try 3 of flaky-9", "ValueError"))
        expect("file, line and trace", error["file"].endswith("application.py") and error["line"] and "flaky" in error["trace"])
        expect("the webhook got it", until("the webhook", lambda: [body for body in self.webhook.bodies if "try 3 of flaky-9" in body]))
        gone = self.app.leaves()
        self.fails("a task that ends its thread", lambda: self.result(gone), "bye")

    def manual_retries(self):
        expect_equal("the third try", self.result(self.app.fragile("fragile-2", 2)), 3)
        task = self.app.fragile("fragile-9", 9)
        self.fails("asked too often", lambda: self.result(task), "Retry limit reached after 3")
        expect_equal("1 and 3 retries", len(self.lines("fragile-9")), 4)

    def timeouts(self):
        task = self.app.slow("slow", 2)
        self.fails("too slow", lambda: self.result(task), "timed out")
        expect_equal("what still runs is told that it may stop", until("it ends", lambda: self.lines("slow")), ["True"])
        expect_equal("its status", self.state(task), "failed")

    def streaming(self):
        task = self.app.multiples(7, 5, 0.1)
        times, chunks = [], []
        for chunk in task.get_stream(self.redis):
            chunks.append(chunk)
            times.append(time.monotonic())
        expect_equal("the chunks", chunks, [f"{i} * 7 = {i * 7}\n" for i in range(1, 6)])
        expect("they come one by one", times[-1] - times[0] > 0.3)
        expect_equal("all together", (task.status, task.result), ("completed", "".join(chunks)))
        again = self.app.Task(task_name="multiples", payload={}, task_id=task.task_id)
        expect_equal("a reader that comes after the end", list(again.get_stream(self.redis)), chunks)
        broken = self.app.breaks_off(3)
        seen = []
        self.fails("it breaks off", lambda: seen.extend(broken.get_stream(self.redis)) or 1, "out of memory")
        self.fails("no stream within its time", lambda: list(self.app.gated("timely", 1).get_stream(self.redis, timeout=1)), "TaskTimeoutError")
        self.touch("timely-go-1")
        count = 2000
        long = self.app.multiples(1, count)
        expect_equal("a long stream", sum(1 for _ in long.get_stream(self.redis)), count)

    def late_reader(self):
        task = self.app.gated("late", 3)
        until("it is in the middle", lambda: self.lines("late-reached"))
        readers = [Reader(self, task.task_id) for _ in range(3)]
        for reader in readers:
            until("what there is already", lambda reader=reader: len(reader.chunks) == 3)
        self.touch("late-go-1")
        for reader in readers:
            expect_equal("all of it", reader.end(), ["1.0 ", "1.1 ", "1.2 ", "1.end"])

    def pydantic(self):
        task = self.app.typed_add(self.app.AddIn(a=3, b=4))
        expect_equal("by a model", self.result(task, returns=self.app.AddOut), self.app.AddOut(total=7))
        task = self.app.typed_add(a=1, b=2)
        expect_equal("by fields", self.result(task, modelq_ref=self.mq), self.app.AddOut(total=3))
        expect_equal("plain", self.result(self.app.typed_add(a=1, b=2)), {"total": 3})
        self.fails("invalid input", lambda: self.app.typed_add(a=-1, b=2), "Input validation failed")
        forged = json.dumps({"payload": {"data": {"a": "x"}}})
        self.server.call("RQ.ENQUEUE", "modelq:typed_add", forged, "ID", "forged")
        self.fails("invalid input of another", lambda: self.result(self.app.Task("typed_add", {}, task_id="forged")), "Input validation failed")
        self.fails("invalid output", lambda: self.result(self.app.typed_wrong(a=1, b=2)), "Output validation failed")

    def middleware(self):
        before = len(self.lines("hooks"))
        self.fails("a failure", lambda: self.result(self.app.slow("hooked", 1.5)), "timed out")
        until("on_error", lambda: any(line.startswith("on_error slow") for line in self.lines("hooks")[before:]))
        hooks = self.lines("hooks")
        for hook in ("before_worker_boot", "after_worker_boot", "before_enqueue", "after_enqueue", "on_timeout slow"):
            expect(f"{hook} was called", hook in hooks)

    def cancel_waiting(self):
        task = self.app.held("cancelled-early")
        with self.paused("held"):
            task = self.app.held("never")
            expect_equal("cancelled", self.mq.cancel_task(task.task_id), True)
            expect_equal("its status", self.state(task), "cancelled")
            expect("both ways to ask", self.mq.is_task_cancelled(task.task_id) and task.is_cancelled(self.redis))
            self.fails("its result", lambda: self.result(task), "was cancelled")
        self.touch("cancelled-early-go")
        expect_equal("never run", self.lines("never-runs"), [])
        expect("it is listed", task.task_id in [found["task_id"] for found in self.mq.get_cancelled_tasks()])
        done = self.app.add(1, 1)
        self.result(done)
        expect_equal("what is done or unknown is not cancelled", (self.mq.cancel_task(done.task_id), self.mq.cancel_task("nobody")), (False, False))

    def cancel_running(self):
        task = self.app.cancellable({"name": "stop-me"})
        until("it runs", lambda: self.lines("stop-me-runs"))
        expect_equal("its id was put into its parameters", self.lines("stop-me-runs"), [task.task_id])
        expect_equal("cancelled", self.mq.cancel_task(task.task_id), True)
        self.fails("its result", lambda: self.result(task), "was cancelled")
        expect_equal("the function stopped", len(self.lines("stop-me-stopped")), 1)
        expect_equal("its status", (self.state(task), self.mq.is_task_cancelled(task.task_id)), ("cancelled", True))

    def cancel_stream(self):
        task = self.app.multiples(1, 100_000, 0.01)
        seen = []
        for chunk in task.get_stream(self.redis):
            seen.append(chunk)
            if len(seen) == 3:
                self.mq.cancel_task(task.task_id)
        expect("it ended early", len(seen) < 1000)
        expect_equal("its status", (task.status, self.state(task)), ("cancelled", "cancelled"))

    def progress(self):
        task = self.app.train({"epochs": 2, "name": "train", "wait": True})
        expect_equal("none yet", self.mq.get_task_progress("nobody"), None)
        until("the first epoch", lambda: len(self.lines("train-epochs")) == 1)
        found = self.mq.get_task_progress(task.task_id)
        expect_equal("progress", (found["progress"], found["message"], task.get_progress(self.redis)), (0.5, "epoch 1", found))
        expect("when", abs(time.time() - found["updated_at"]) < PATIENCE)
        self.touch("train-go-0")
        self.touch("train-go-1")
        expect_equal("the result", self.result(task), {"epochs": 2})
        expect_equal("the last progress stays", self.mq.get_task_progress(task.task_id)["message"], "epoch 2")

    def worker_info(self):
        workers = self.mq.get_workers()
        expect_equal("both", sorted(workers), ["one", "two"])
        expect_equal("their ids", sorted(self.mq.get_registered_server_ids()), ["one", "two"])
        one = self.mq.get_worker("one")
        expect("tasks, host and system", "add" in one["allowed_tasks"] and one["hostname"] and one["os"] and one["python_version"])
        expect("processor and memory", one["system_info"]["cpu"]["cores_logical"] and one["system_info"]["ram"]["total_gb"])
        expect("a fresh sign of life", abs(time.time() - one["last_heartbeat"]) < PATIENCE)
        expect_equal("unknown", self.mq.get_worker("three"), None)
        until("idle", lambda: {worker["status"] for worker in self.mq.get_workers().values()} == {"idle"})
        tasks = [self.app.held("busy") for _ in range(4)]
        until("busy", lambda: {worker["status"] for worker in self.mq.get_workers().values()} == {"busy"})
        expect_equal("in work", {task["task_id"] for task in self.mq.get_processing_tasks()}, {task.task_id for task in tasks})
        self.touch("busy-go")
        for task in tasks:
            self.result(task)

    def history(self):
        self.mq.clear_task_history(0)
        expect_equal("cleared", (self.mq.get_task_history(), self.mq.get_task_history_count()), ([], 0))
        good = []
        for i in range(5):
            good.append(self.app.add(i, 1))
            self.result(good[-1])
            time.sleep(0.002)  # the order of what comes within a millisecond is nobody's promise
        bad = self.app.flaky("historic", 9)
        self.fails("it fails", lambda: self.result(bad), "historic")
        newest = [task["task_id"] for task in self.mq.get_task_history()]
        expect_equal("the newest first", newest, [bad.task_id, *(task.task_id for task in reversed(good))])
        expect_equal("a page", [task["task_id"] for task in self.mq.get_task_history(limit=2, offset=1)], newest[1:3])
        expect_equal("failed", [task["task_id"] for task in self.mq.get_failed_tasks()], [bad.task_id])
        expect_equal("completed", [task["result"] for task in self.mq.get_completed_tasks()], [5, 4, 3, 2, 1])
        expect_equal("by name", len(self.mq.get_tasks_by_name("add")), 5)
        details = self.mq.get_task_details(good[0].task_id)
        expect_equal("arguments", details["payload"]["data"], {"args": [0, 1], "kwargs": {}})
        expect("times", details["queued_at"] <= details["started_at"] <= details["finished_at"])
        stats = self.mq.get_task_stats()
        expect_equal("counts", (stats["total"], stats["by_status"]), (6, {"completed": 5, "failed": 1}))
        expect_equal("by name", stats["by_task_name"]["add"], {"total": 5, "completed": 5, "failed": 0})
        expect_equal("failures", [task["task_id"] for task in stats["failed_tasks"]], [bad.task_id])
        expect_equal("younger than an hour", self.mq.clear_task_history(3600), 0)
        expect_equal("all of it", (self.mq.clear_task_history(0), self.mq.get_task_history_count()), (6, 0))

    def queue(self):
        with self.paused("add", "echo"):
            tasks = [self.app.add(i, i) for i in range(3)] + [self.app.echo("x")]
            queued = self.mq.get_all_queued_tasks()
            expect_equal("queued", {(task["task_id"], task["task_name"]) for task in queued}, {(task.task_id, task.task_name) for task in tasks})
            expect_equal("removed", self.mq.remove_task_from_queue(tasks[0].task_id), True)
            expect_equal("unknown", self.mq.remove_task_from_queue("nobody"), False)
            listed = self.cli("list-queued", "application:mq")
            expect("the command line lists them", "(3)" in listed and f"{tasks[1].task_id} (add)" in listed)
            expect("and counts", "Queued Tasks: 3" in self.cli("status", "application:mq"))
            expect("and removes", "removed from queue" in self.cli("remove-task", "application:mq", tasks[1].task_id))
            expect_equal("two are left", len(self.mq.get_all_queued_tasks()), 2)
            expect("and clears", "Cleared all tasks" in self.cli("clear-queue", "application:mq"))
            expect_equal("none is left", self.mq.get_all_queued_tasks(), [])
            delayed = self.app.Task("add", {"data": {"args": [1, 2], "kwargs": {}}})
            self.mq.enqueue_delayed_task(delayed.to_dict(), 3600)
            expect_equal("a delayed one", len(self.mq.get_all_queued_tasks()), 1)
            self.mq.delete_queue()
            expect_equal("goes too", self.mq.get_all_queued_tasks(), [])
        running = self.app.held("unremovable")
        until("it runs", lambda: self.state(running) == "processing")
        expect_equal("what is in work is not removed", self.mq.remove_task_from_queue(running.task_id), False)
        expect_equal("nor cancelled", self.mq.is_task_cancelled(running.task_id), False)
        self.touch("unremovable-go")
        self.result(running)
        delayed = self.app.Task("add", {"data": {"args": [1, 2], "kwargs": {}}})
        begin = time.monotonic()
        self.mq.enqueue_delayed_task(delayed.to_dict(), 1)
        expect_equal("a second later", self.result(delayed), 3)
        expect("not before", time.monotonic() - begin > 0.9)
        expect("its version", "ModelQ" in self.cli("version"))

    def expiry(self):
        with self.paused("add"):
            self.mq.task_ttl = 0.3
            task = self.app.add(1, 1)
            self.mq.task_ttl = 3600
            self.fails("nobody took it in time", lambda: self.result(task), "in time")
            expect_equal("its status", self.mq.get_task_details(task.task_id)["status"], "expired")
            expect("it is listed", task.task_id in [found["task_id"] for found in self.mq.get_task_history(status="expired")])
            expect_equal("nothing is left to clean up", self.mq.cleanup_expired_tasks(), 0)

    def large(self):
        value = "".join(chr(33 + i % 90) for i in range(1000)) * (MEGABYTES // 1000 + 1)
        tasks = [self.app.echo(value + str(i)) for i in range(3)]
        for i, task in enumerate(tasks):
            expect(f"result {i}, {len(value):,} bytes, comes back as it was", self.result(task) == value + str(i))
        expect("so does its argument", self.mq.get_task_details(tasks[0].task_id)["payload"]["data"]["args"] == [value + "0"])

    def routing(self):
        """A process has a task that the others do not know: they leave it alone."""
        def delivered():
            return sum(self.server.map("RQ.STATS", name)[b"totals"][3] for name in ("modelq:rare",))

        job = json.dumps({"payload": {"data": {"args": ["one"], "kwargs": {}}}})
        self.server.call("RQ.ENQUEUE", "modelq:rare", job, "ID", "rare-1")
        self.result(self.app.add(1, 1))
        expect_equal("nobody took it", (self.mq.get_task_status("rare-1"), delivered()), ("queued", 0))
        process = self.workers("three", MORE="1")
        rare = self.app.Task("rare", {}, task_id="rare-1")
        expect_equal("its result", self.result(rare), "rare one")
        expect_equal("handed out once", delivered(), 1)
        self.terminate(process, "three")

    def unhealthy(self):
        self.touch("refuse-to-boot")
        process = self.workers("four", MORE="1")
        os.unlink(os.path.join(self.folder, "refuse-to-boot"))
        task = self.app.Task("rare", {}, task_id="rare-2")
        self.server.call("RQ.ENQUEUE", "modelq:rare", json.dumps({"payload": {"data": {"args": ["x"], "kwargs": {}}}}), "ID", "rare-2")
        self.fails("a worker that did not boot takes nothing", lambda: task.get_result(self.redis, timeout=1), "TaskTimeoutError")
        self.terminate(process, "four")
        self.mq.delete_queue()

    def terminate(self, process, name):
        os.kill(process.pid, signal.SIGTERM)
        process.wait(PATIENCE)
        expect(f"{name} left the list at once", name not in self.mq.get_workers())

    def stopped(self):
        """SIGTERM: what was in work is another's at once, and no failure of the task."""
        process = self.workers("five", 1, MORE="1")
        task = self.app.Task("rare_held", {"data": {"args": ["handed-over"], "kwargs": {}}})
        self.mq.enqueue_task(task.to_dict(), task.payload)
        runs = until("it runs", lambda: self.lines("handed-over-runs"))
        expect_equal("there", int(runs[0]), process.pid)
        other = self.workers("six", 1, MORE="1")
        self.terminate(process, "five")
        until("it runs elsewhere", lambda: len(self.lines("handed-over-runs")) == 2)
        job = self.server.map("RQ.JOB", "modelq:rare_held", task.task_id)
        expect_equal("unharmed", (job[b"attempts"], job[b"crashes"]), (0, 0))
        self.touch("handed-over-go")
        self.result(task)
        self.terminate(other, "six")
        expect("the hooks knew", {"before_worker_shutdown", "after_worker_shutdown"} <= set(self.lines("hooks")))

    def killed(self):
        """kill -9 in mid-run: the task comes back by itself; a stream begins anew, and its readers are told."""
        task, restarts = self.app.gated("killed", 3), []
        reader = Reader(self, task.task_id, on_restart=restarts.append)
        until("three chunks", lambda: len(reader.chunks) == 3)
        first = int(self.lines("killed-runs")[0])
        victim = next(name for name, process in self.standing.items() if process.pid == first)
        os.killpg(first, signal.SIGKILL)
        until("it is worked on again", lambda: len(self.lines("killed-reached")) == 2)
        expect("by another", int(self.lines("killed-runs")[1]) != first)
        joined = Reader(self, task.task_id)
        self.touch("killed-go-2")
        again = ["2.0 ", "2.1 ", "2.2 ", "2.end"]
        expect_equal("one that comes now sees the new run only", joined.end(), again)
        expect_equal("the first sees both", reader.end(), ["1.0 ", "1.1 ", "1.2 ", *again])
        expect_equal("and was told", (restarts, reader.task.run), ([2], 2))
        expect_equal("what it has together is of the new one", (reader.task.combined_result, reader.task.status), ("".join(again), "completed"))
        job = self.server.map("RQ.JOB", "modelq:gated", task.task_id)
        expect_equal("a crash, no failure", (job[b"deliveries"], job[b"crashes"], job[b"attempts"]), (2, 1, 0))
        until("it left the list", lambda: victim not in self.mq.get_workers())
        self.standing[victim] = self.workers(victim)

    def frozen(self):
        """A process that stops for longer than its lease loses the task; what it does later changes nothing."""
        task = self.app.held("frozen")
        first = int(until("it runs", lambda: self.lines("frozen-runs"))[0])
        os.killpg(first, signal.SIGSTOP)
        until("it runs again", lambda: len(self.lines("frozen-runs")) > 1)
        os.killpg(first, signal.SIGCONT)
        self.touch("frozen-go")
        expect_equal("the result", self.result(task), "frozen")
        expect("by another", int(self.lines("frozen-runs")[1]) != first)
        until("it is back on the list", lambda: set(self.mq.get_workers()) == set(self.standing))

    def server_restart(self):
        """The server is killed and comes back: workers, readers and those who wait go on."""
        task, waits = self.app.gated("restart", 2), self.app.held("restarted")
        reader = Reader(self, task.task_id)
        until("two chunks", lambda: len(reader.chunks) == 2)
        until("it runs", lambda: self.lines("restarted-runs"))
        waiting = Background(lambda: self.result(waits))
        self.server.restart()
        self.touch("restart-go-1")
        self.touch("restarted-go")
        expect_equal("the stream", reader.end(), ["1.0 ", "1.1 ", "1.end"])
        expect_equal("the result", waiting.end(), "restarted")

    def lost_answers(self):
        """The connection breaks while a command is on its way, or its answer: nothing is there twice, and nothing is missing."""
        import redis
        from rq_modelq import ModelQ, Run

        line = Line(self.server.port)
        client = redis.Redis(port=line.port)
        mq = ModelQ(redis_client=client, server_id="seven", queue_prefix="lines")

        @mq.task(stream=True)
        def lines():
            pass

        for breaks in ("request", "answer"):
            client.ping()
            line.breaks = breaks
            task = lines(_task_id=f"lost-{breaks}")
            (found,) = self.server.call("RQ.CLAIM", "lines:lines", "me")
            expect_equal(f"{breaks} of an enqueue", (found[0].decode(), self.server.call("RQ.CLAIM", "lines:lines", "me")), (task.task_id, None))
            run = Run(mq._rq, "me", 30, "lines:lines", found[0], found[1], found[3])
            for i in range(4):
                line.breaks = breaks if i in (1, 3) else None
                run.emit(json.dumps(i))
            self.server.call("RQ.ACK", "lines:lines", found[0], found[1], "RESULT", "{}")
            expect_equal(f"{breaks} of two chunks", list(task.get_stream(client)), [0, 1, 2, 3])
        expect_equal("broken so often", line.broken, 6)
        self.server.call("UNLINK", "lines:lines")

    def rest_api(self):
        port = free_port()
        command = [*CLI, "serve-api", "application:mq", "--host", "127.0.0.1", "--port", str(port)]
        self.stage.start(command, environment=self.environment, cwd=self.stage.folder)

        def ask(path, body=None):
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=json.dumps(body).encode() if body is not None else None,
                                             headers={"Content-Type": "application/json"})  # fmt: skip
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
            except urllib.error.URLError:
                return 0, ""

        until("it serves", lambda: ask("/healthz")[0] == 200)
        expect_equal("typed", [json.loads(part) if part else part for part in ask("/task/typed_add", {"a": 3, "b": 4})[1:]], [{"total": 7}])
        expect_equal("typed, invalid", ask("/task/typed_add", {"a": -3, "b": 4})[0], 422)
        expect_equal("plain", json.loads(ask("/task/add", {"params": {"a": 3, "b": 7}})[1]), {"result": 10})
        expect_equal("a stream", ask("/task/multiples", {"params": {"x": 2, "n": 2}}), (200, "1 * 2 = 2\n2 * 2 = 4\n"))
        status, body = ask("/task/held", {"params": {"name": "by-http"}})
        queued = json.loads(body)["task_id"]
        expect_equal("what takes longer", status, 202)
        expect_equal("its status", json.loads(ask(f"/task/{queued}/status")[1])["status"], "processing")
        expect_equal("no result yet", ask(f"/task/{queued}/result")[0], 404)
        self.touch("by-http-go")
        until("its result", lambda: ask(f"/task/{queued}/result")[0] == 200)
        expect_equal("as ModelQ tells it", json.loads(ask(f"/task/{queued}/result")[1])["result"], "by-http")
        expect_equal("unknown", ask("/task/nobody/status")[0], 404)
        expect_equal("the status of all", set(json.loads(ask("/status")[1])["registered_servers"]), set(self.standing))
        expect_equal("the queue", json.loads(ask("/queue")[1]), {"queued_tasks": []})

    def documentation(self):
        """The example of the page."""
        with open(os.path.join(ROOT, "docs", "integrations", "modelq.md"), encoding="utf-8") as file:
            page = file.read()
        program = page.split("```python\n")[1].split("```")[0]
        expect("it is there", "ModelQ(redis_client=Redis()" in program)
        program = program.replace("ModelQ(redis_client=Redis()", f'ModelQ(queue_prefix="page", redis_client=Redis(port={self.server.port})')
        with open(os.path.join(self.stage.folder, "main.py"), "w", encoding="utf-8") as file:
            file.write(program)
        worker, *calls = [shlex.split(line) for line in page.split("```sh\n")[1].split("```")[0].splitlines()]
        process = self.stage.start([*CLI, *worker[1:]], environment=self.environment, cwd=self.stage.folder)
        said = []
        for call in calls:
            done = subprocess.run([sys.executable, *call[1:]], cwd=self.stage.folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
            expect(f"{call} ends well: {done.stderr}", done.returncode == 0)
            said.append(done.stdout)
        expect_equal("what they print", said, ["5\n", "Once  upon  a time\n"])
        self.stage.end(process)
        for name in ("page:add", "page:tell", "page.workers"):
            expect_equal(f"{name} is there", self.server.call("UNLINK", name), 1)

    def only_our_commands(self):
        """After all this: no command was used but those of the module, and no key is there but the queues."""
        foreign = {name for name in self.server.spent() if not name.lower().startswith("rq.")} - PLAIN
        expect_equal("other commands", foreign, set())
        queues = {name.decode() for name in self.server.call("RQ.QUEUES", "COUNT", 1000)[1]}
        expect_equal("keys that are no queues", self.server.call("DBSIZE") - len(queues), 0)
        tasks = {*self.mq.allowed_tasks, "rare", "rare_held"}
        expect_equal("other queues", queues - {"modelq.workers", *(f"modelq:{name}" for name in tasks)}, set())

    @contextlib.contextmanager
    def paused(self, *names):
        for name in names:
            self.server.call("RQ.PAUSE", f"modelq:{name}")
        try:
            yield
        finally:
            for name in names:
                self.server.call("RQ.RESUME", f"modelq:{name}")

    def run(self, only):
        self.standing = {name: self.process(name) for name in ("one", "two")}
        until("both are registered", lambda: set(self.mq.get_workers()) == set(self.standing))
        trials = [
            self.basic_usage, self.long_begins, self.many_at_once, self.task_ids, self.retries, self.manual_retries, self.timeouts,
            self.streaming, self.late_reader, self.pydantic, self.middleware, self.cancel_waiting, self.cancel_running,
            self.cancel_stream, self.progress, self.long_ends, self.worker_info, self.history, self.queue, self.expiry, self.large,
            self.routing, self.unhealthy, self.stopped, self.killed, self.frozen, self.lost_answers, self.rest_api,
            self.documentation, self.only_our_commands, self.server_restart, self.only_our_commands,
        ]  # fmt: skip
        for trial in trials:
            if only and trial.__name__ not in only:
                continue
            begin = time.monotonic()
            try:
                trial()
            except Wrong as wrong:
                raise Wrong(f"{trial.__name__}: {wrong}") from wrong
            print(f"  {trial.__name__.replace('_', ' ')} ({time.monotonic() - begin:.1f} s)", flush=True)


class Background:
    """A call in a thread of its own."""

    def __init__(self, call):
        self.call, self.found, self.error = call, None, None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            self.found = self.call()
        except Exception as error:
            self.error = error

    def end(self):
        self.thread.join(PATIENCE)
        if self.error is not None:
            raise self.error
        expect("it came to an end", not self.thread.is_alive())
        return self.found


class Reader(Background):
    """Somebody who follows the output of a task."""

    def __init__(self, trials, task_id, on_restart=None):
        self.task, self.chunks = trials.app.Task("gated", {}, task_id=task_id), []
        self.stream = self.task.get_stream(trials.redis, timeout=PATIENCE, on_restart=on_restart)
        super().__init__(self.follow)

    def follow(self):
        for chunk in self.stream:
            self.chunks.append(chunk)
        return self.chunks


class Line:
    """A line to the server that breaks when it is told to: with the next request, which does not arrive, or with the next answer."""

    def __init__(self, target):
        self.target, self.breaks, self.broken = target, None, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            near = self.listener.accept()[0]
            far = socket.create_connection(("127.0.0.1", self.target))
            for source, sink, name in ((near, far, "request"), (far, near, "answer")):
                threading.Thread(target=self.pump, args=(source, sink, name), daemon=True).start()

    def pump(self, source, sink, name):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.breaks == name:
                    self.breaks, self.broken = None, self.broken + 1
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Webhook:
    """Takes what is posted to it."""

    def __init__(self):
        bodies = self.bodies = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["content"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()
