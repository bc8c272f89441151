#!/usr/bin/env python3
"""Runs the workers of this folder, one per language, through the same trials against a real server.

Run it by `make test-workers`. Each worker must: end jobs and fail them; keep a job that takes longer than its lease; give up
what was cancelled or lost; end what it works on at SIGTERM and give back what came too late; be replaced when it is
killed; and go on after a restart of the server, also when its work ended meanwhile. The queue tells whether it did: nothing
is read from the workers themselves.

Only the standard library is used. A language that this machine lacks is left out, said aloud, and an error with --strict.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "..", "demo"))
from demo import Connection, ServerError  # noqa: E402

LEASE = 1500  # ms; the workers give a sign of life every 500
PATIENCE = 60  # seconds until something is taken to hang
LONG = 3600_000  # ms of work that nobody waits for


class Wrong(Exception):
    """A worker did not do what it should."""


def expect(what, is_so):
    if not is_so:
        raise Wrong(what)


def until(what, condition):
    """Waits for a condition; gives what it gives."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        expect(f"{what}: not within {PATIENCE} s", time.monotonic() < end)
        time.sleep(0.01)
    return found


class Language:
    """How a worker is built and started. `needs`: commands, and a call that shows whether the client library is there."""

    def __init__(self, name, command, needs, build=None, environment=None):
        self.name, self.command, self.needs, self.build = name, command, needs, build
        self.environment = environment or {}

    def missing(self):
        for command in self.needs:
            if shutil.which(command[0]) is None:
                return command[0]
            if len(command) > 1 and (run := self.run(command)).returncode != 0:
                return f"the client library ({run.stderr.strip().splitlines()[-1:]})"
        return None

    def prepare(self):
        if self.build is not None:
            done = self.run(self.build)
            expect(f"it does not compile:\n{done.stderr}", done.returncode == 0)

    def run(self, command):
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, check=False)


def languages(build, output):
    go = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": os.path.join(build, "go-cache")}
    compiled = {name: os.path.join(output, f"worker-{name}") for name in ("c", "go")}
    compile_c = ["cc", "-Wall", "-Wextra", "-Werror", "-O1", "-o", compiled["c"], "worker.c", "-lhiredis"]
    return [
        Language("python", [sys.executable, "worker.py"], [[sys.executable, "-c", "import redis"]],
                 environment={"PYTHONPATH": os.path.join(build, "python")}),
        Language("node", ["node", "worker.js"], [["node", "-e", 'require("ioredis")']],
                 environment={"NODE_PATH": os.path.join(build, "node", "node_modules")}),
        Language("ruby", ["ruby", "worker.rb"], [["ruby", "-e", 'require "redis"']]),
        Language("php", ["php", "worker.php"], [["php", "-r", "new Redis(); pcntl_async_signals();"]]),
        Language("go", [compiled["go"]], [["go", "list", "gopkg.in/redis.v5"]],
                 build=["go", "build", "-o", compiled["go"], "worker.go"], environment=go),
        Language("c", [compiled["c"]], [["cc", "-fsyntax-only", "-include", "hiredis/hiredis.h", "-x", "c", "/dev/null"]],
                 build=compile_c),
        Language("shell", ["bash", "worker.sh"], [["bash"], ["redis-cli"]]),
    ]  # fmt: skip


class Server:
    """A server, with the module if one is given, which writes everything to disk at once."""

    def __init__(self, binary, module, folder):
        self.folder, self.path, self.process, self.started = folder, os.path.join(folder, "socket"), None, 0.0
        self.command = [binary, "--bind", "127.0.0.1", "--unixsocket", self.path, "--dir", folder, "--logfile", "log",
                        "--save", "", "--appendonly", "yes", "--appendfsync", "always"]  # fmt: skip
        if module is not None:
            self.command += ["--loadmodule", os.path.abspath(module)]
        for self.port in range(23_500, 24_000):
            if self.start():
                return
        sys.exit("no port is free")

    def start(self):
        """Whether it came up; if not, another has its port."""
        log = os.path.join(self.folder, "log")
        open(log, "w", encoding="utf-8").close()
        self.started = time.time()
        self.process = subprocess.Popen([*self.command, "--port", str(self.port)], stdin=subprocess.DEVNULL)
        while True:
            try:
                self.connect().call("PING")
                return True
            except (OSError, ServerError, EOFError):
                if self.process.poll() is not None:
                    with open(log, encoding="utf-8", errors="replace") as file:
                        text = file.read()
                    if "Address already in use" not in text:
                        sys.exit(f"the server did not start:\n{text}")
                    return False
                time.sleep(0.01)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def connect(self):
        return Connection(self.path)


class Queue:
    """A queue as the one sees it who puts jobs into it."""

    def __init__(self, server, name):
        self.server, self.name, self.connection = server, name, server.connect()
        self.call("QUEUE.SET", "ATTEMPTS", 1, "TTL", "none")

    def again(self):
        """After a restart of the server."""
        self.connection = self.server.connect()

    def call(self, command, *words):
        return self.connection.call(f"RQ.{command}", self.name, *words)

    def map(self, command, *words):
        reply = self.call(command, *words)
        return dict(zip(reply[::2], reply[1::2]))

    def enqueue(self, payload):
        return self.call("ENQUEUE", payload)

    def job(self, job):
        return self.map("JOB", job)

    def workers(self):
        return [dict(zip(worker[::2], worker[1::2])) for worker in self.call("WORKERS")[1]]

    def worker(self, pid):
        """What the queue knows of this process, by the pid in its name."""
        found = [worker for worker in self.workers() if f"-{pid}-".encode() in worker[b"name"]]
        return found[0] if found else None

    def holder(self, job):
        return until(f"{job!r} is claimed", lambda: self.job(job)[b"worker"] if self.job(job)[b"state"] == b"active" else None)

    def at_work(self, job):
        """The worker that has given a sign of life for this job; a worker that has just got it might still give it back."""
        holder = self.holder(job)
        until("the lease is extended", lambda: (now := self.job(job))[b"lease-until"] > now[b"claimed"] + LEASE)
        return holder

    def ended(self, job, state):
        """Waits until a job is final, which must be so; gives its value."""
        ends = self.call("RESULT", job, "BLOCK", PATIENCE * 1000)
        expect(f"{self.name}: the job should be {state.decode()}, and is {ends}", ends is not None and ends[0] == state)
        return ends[1]


class Worker:
    """A worker's process."""

    def __init__(self, trial, queue, lease=LEASE):
        environment = {**os.environ, **trial.language.environment}
        environment |= {"REDIS_HOST": "127.0.0.1", "REDIS_PORT": str(queue.server.port), "QUEUE": queue.name, "LEASE": str(lease)}
        self.queue = queue
        self.process = subprocess.Popen(
            trial.language.command, cwd=FOLDER, env=environment, stdin=subprocess.DEVNULL, stdout=trial.log, stderr=trial.log
        )
        trial.workers.append(self)
        self.is_waiting()

    def is_waiting(self):
        def waits():
            expect("the worker ended", self.process.poll() is None)
            worker = self.queue.worker(self.process.pid)
            return worker is not None and worker[b"waiting-since"] is not None

        until("the worker waits for a job", waits)

    def signal(self, number):
        self.process.send_signal(number)

    def signal_all(self, number):
        """Also to all processes that it has started; parents first, so that a stopped one starts no other."""
        seen = set()
        while new := [pid for pid in tree(self.process.pid) if pid not in seen]:
            seen.add(new[0])
            try:
                os.kill(new[0], number)
            except ProcessLookupError:
                pass
        return seen

    def end(self):
        """Kills it, with all processes that it has started."""
        if self.process.poll() is None:
            for pid in self.signal_all(signal.SIGSTOP):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.wait()

    def ends_well(self):
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Wrong("the worker does not end") from None
        expect(f"its exit code is {code}", code == 0)


def tree(pid):
    """A process and all below it, parents first."""
    pairs = processes()
    found = [pid]
    for parent in found:
        found.extend(child for child, its_parent in pairs if its_parent == parent)
    return found


def processes():
    """All processes, each with its parent."""
    if not os.path.exists("/proc/self/stat"):
        output = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True, check=True).stdout
        return [tuple(map(int, line.split())) for line in output.splitlines()]
    pairs = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pairs.append((int(pid), int(file.read().rpartition(b")")[2].split()[1])))
        except OSError:
            pass  # it is gone
    return pairs


class Trial(threading.Thread):
    """All trials of one language, each with a queue of its own."""

    TRIALS = ("works_and_fails", "keeps_and_gives_up", "ends_what_it_works_on", "gives_back_what_comes_too_late", "is_replaced",
              "goes_on_after_a_restart")  # fmt: skip

    def __init__(self, language, server, folder, barrier):
        super().__init__(daemon=True)
        self.language, self.server, self.barrier = language, server, barrier
        self.log_path = os.path.join(folder, f"{language.name}.log")
        self.log = open(self.log_path, "wb")
        self.workers = []
        self.steps = 3  # ready for the restart; at work; the server is back
        self.problem = None
        self.seconds = 0.0

    def run(self):
        start = time.monotonic()
        trial = "before all"
        try:
            self.language.prepare()
            for trial in self.TRIALS:
                try:
                    getattr(self, trial)(Queue(self.server, f"{self.language.name}-{trial.replace('_', '-')}"))
                finally:
                    self.end_workers()
        except Exception as error:  # shown at the end, with what the worker said
            self.problem = f"{trial}: {error if isinstance(error, Wrong) else traceback.format_exc()}"
        self.seconds = time.monotonic() - start
        while self.steps > 0:  # if it failed before: the others are not to wait for it
            self.step()

    def step(self):
        """Waits until all languages are so far."""
        self.steps -= 1
        self.barrier.wait()

    def end_workers(self):
        for worker in self.workers:
            worker.end()
        self.workers.clear()

    def works_and_fails(self, queue):
        Worker(self, queue)
        good, bad, next_one = queue.enqueue("7"), queue.enqueue("many"), queue.enqueue("8")
        expect("it gives the result", queue.ended(good, b"done") == b"slept 7 ms")
        expect("it tells what went wrong", b"many" in queue.ended(bad, b"dead"))
        expect("it goes on after a failure", queue.ended(next_one, b"done") == b"slept 8 ms")

    def keeps_and_gives_up(self, queue):
        worker = Worker(self, queue)
        # A job of three leases.
        long = queue.enqueue(LEASE * 3)
        queue.ended(long, b"done")
        expect("it kept the job by its heartbeats", queue.job(long)[b"deliveries"] == 1)
        # A job that is cancelled in mid-work.
        job = queue.enqueue(LONG)
        queue.at_work(job)
        expect("it is being cancelled", queue.call("CANCEL", job) == [b"cancelling"])
        queue.ended(job, b"cancelled")
        worker.is_waiting()
        # A job that it loses while it is frozen, to another.
        job = queue.enqueue(LONG)
        queue.at_work(job)
        worker.signal_all(signal.SIGSTOP)
        jobs = queue.call("CLAIM", "another", "BLOCK", PATIENCE * 1000, "LEASE", PATIENCE * 1000)
        expect("another got the job", jobs is not None and jobs[0][0] == job)
        worker.signal_all(signal.SIGCONT)
        worker.is_waiting()
        now = queue.job(job)
        expect("the other still has it", (now[b"state"], now[b"worker"], now[b"token"]) == (b"active", b"another", jobs[0][1]))
        expect("the other can end it", queue.call("ACK", job, jobs[0][1]) == 1)
        # And it still works.
        queue.ended(queue.enqueue("1"), b"done")

    def ends_what_it_works_on(self, queue):
        worker = Worker(self, queue)
        first, second = queue.enqueue(LEASE * 2), queue.enqueue("1")
        queue.at_work(first)
        worker.signal(signal.SIGTERM)
        worker.ends_well()
        expect("it ended its job", queue.job(first)[b"state"] == b"done")
        second = queue.job(second)
        expect("it claimed no other", (second[b"state"], second[b"deliveries"]) == (b"ready", 0))

    def gives_back_what_comes_too_late(self, queue):
        worker = Worker(self, queue)
        worker.signal(signal.SIGTERM)
        time.sleep(0.3)  # nothing tells when it has taken note
        job = queue.enqueue("1")
        worker.ends_well()
        job = queue.job(job)
        expect("the job is back", job[b"state"] == b"ready")
        expect("it was given back", (job[b"deliveries"], job[b"attempts"], job[b"crashes"]) == (1, 0, 0))

    def is_replaced(self, queue):
        workers = [Worker(self, queue), Worker(self, queue)]
        job = queue.enqueue(LEASE * 2)
        holder = queue.at_work(job)
        [killed] = [worker for worker in workers if f"-{worker.process.pid}-".encode() in holder]
        [other] = [worker for worker in workers if worker is not killed]
        killed.signal(signal.SIGKILL)
        queue.ended(job, b"done")
        after = queue.job(job)
        expect("it was handed out twice, and one crashed", (after[b"deliveries"], after[b"crashes"]) == (2, 1))
        expect("the other did it", queue.worker(other.process.pid)[b"done"] == 1)
        other.signal(signal.SIGTERM)  # while it waits
        other.ends_well()

    def goes_on_after_a_restart(self, working):
        waiting = Queue(self.server, working.name + "-waiting")
        Worker(self, waiting)
        worker = Worker(self, working, lease=PATIENCE * 1000)
        self.step()
        job = working.enqueue("1500")
        working.holder(job)
        self.step()  # the server is killed now, and comes back when the work has long ended
        self.step()
        for queue in (waiting, working):
            queue.again()
        expect("it says again how it ended", working.ended(job, b"done") == b"slept 1500 ms")
        expect("it ended while the server was away", working.job(job)[b"ended"] > self.server.started * 1000)
        expect("the job was done once", working.job(job)[b"deliveries"] == 1)
        expect("by this worker", working.worker(worker.process.pid)[b"done"] == 1)
        waiting.ended(waiting.enqueue("1"), b"done")
        working.ended(working.enqueue("1"), b"done")


def expect_readme_shows(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        example = file.read()
    with open(os.path.join(FOLDER, "..", "..", "README.md"), encoding="utf-8") as file:
        if f"```python\n{example}```" not in file.read():
            sys.exit(f"README.md does not show {name} as it is")


def main():
    parser = argparse.ArgumentParser(description="Try the example workers.")
    parser.add_argument("--module", required=True, help="the built module")
    parser.add_argument("--server", default="redis-server", help="the server's binary")
    parser.add_argument("--build", default="build", help="where python/ and node/ have the client libraries")
    parser.add_argument("--only", help="names of languages, separated by commas")
    parser.add_argument("--strict", action="store_true", help="a missing language is an error")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it cleans up
    folder = tempfile.mkdtemp(prefix="rq-workers-")
    chosen = languages(os.path.abspath(options.build), folder)
    if options.only:
        wanted = options.only.split(",")
        chosen = [language for language in chosen if language.name in wanted]
    expect_readme_shows("worker.py")
    left_out = [(language.name, missing) for language in chosen if (missing := language.missing())]
    chosen = [language for language in chosen if language.name not in dict(left_out)]
    server, trials = None, []
    try:
        server = Server(options.server, options.module, folder)
        barrier = threading.Barrier(len(chosen) + 1)
        trials = [Trial(language, server, folder, barrier) for language in chosen]
        for trial in trials:
            trial.start()
        barrier.wait()
        barrier.wait()
        server.kill()
        time.sleep(3)  # for so long it is away; the work ends within it
        if not server.start():
            sys.exit("another has taken the server's port")
        barrier.wait()
        for trial in trials:
            trial.join()
    finally:
        for trial in trials:
            trial.end_workers()
        if server is not None:
            server.kill()
    failed = 0
    for trial in trials:
        print(f"worker in {trial.language.name:7} {'ok' if trial.problem is None else 'FAILED'} ({trial.seconds:.0f} s)")
        if trial.problem is not None:
            failed += 1
            trial.log.close()
            with open(trial.log_path, encoding="utf-8", errors="replace") as file:
                print(f"  {trial.problem}\n  the worker said:\n{file.read()[-3000:]}")
    for name, missing in left_out:
        print(f"*** THE WORKER IN {name.upper()} WAS NOT TRIED: {missing} is missing")
    shutil.rmtree(folder, ignore_errors=True)
    print(f"workers: {len(trials) - failed} passed, {failed} failed, {len(left_out)} skipped")
    return 1 if failed or not trials or (options.strict and left_out) else 0


if __name__ == "__main__":
    sys.exit(main())
