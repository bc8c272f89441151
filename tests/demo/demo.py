#!/usr/bin/env python3
"""Hashes every file below a folder with several workers, one of which is killed, and checks every result.

Run it by `make demo`. Each regular file becomes a job whose payload is its path, which may hold any byte. Separate worker
processes claim jobs, compute the SHA-256 and acknowledge with the digest as the result. One worker is killed (SIGKILL)
while it holds jobs: nobody tells the server, which gives the jobs to others when their lease lapses. One job names a file
that does not exist: it fails, is tried again, and ends dead. At the end every result is compared with what `sha256sum`
says.

Only the standard library is used; the few lines of `Connection` are all that a client of this module needs.
"""

import argparse
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

QUEUE = b"files"
WORKERS = 4
BATCH = 8  # jobs that a worker takes at once
LEASE = 2000  # ms; short, so that the recovery of the killed worker's jobs is seen
HEARTBEAT = LEASE / 4000  # seconds
FILES = 5000  # at most, unless told otherwise: a demo should not take minutes


class ServerError(Exception):
    """An error reply."""


class Connection:
    """RESP2 over a Unix socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.input = self.socket.makefile("rb")

    def send(self, *args):
        parts = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))

    def read(self):
        line = self.input.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError("the server is gone")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"-":
            return ServerError(rest.decode("utf-8", "replace"))
        if kind == b"$":
            return None if rest == b"-1" else self.input.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self.read() for _ in range(int(rest))]
        raise ValueError(line)

    def call(self, *args):
        self.send(*args)
        reply = self.read()
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def call_map(self, *args):
        reply = self.call(*args)
        return dict(zip(reply[::2], reply[1::2]))


def worker(path, name):
    """Claims, hashes and acknowledges until the server goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    server = Connection(path)
    parent = os.getppid()
    try:
        while True:
            if os.getppid() != parent:  # killed before it could clean up
                server.call("SHUTDOWN", "NOSAVE")
            jobs = server.call("RQ.CLAIM", QUEUE, name, "COUNT", BATCH, "BLOCK", 5000) or []
            while jobs:
                job, token, file, _delivery = jobs[0]
                try:
                    digest = hash_file(file, lambda: heartbeat(server, name, jobs))
                    server.call("RQ.ACK", QUEUE, job, token, "RESULT", digest)
                except OSError as error:
                    server.call("RQ.FAIL", QUEUE, job, token, "ERROR", str(error))
                except ServerError as error:
                    if not str(error).startswith("STALE"):
                        raise  # stale: too late, somebody else has it
                jobs.pop(0)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass


def hash_file(path, still_here):
    digest = hashlib.sha256()
    beat = time.monotonic()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            if time.monotonic() - beat > HEARTBEAT:
                still_here()
                beat = time.monotonic()
    return digest.hexdigest()


def heartbeat(server, name, jobs):
    held = [word for job, token, _file, _delivery in jobs for word in (job, token)]
    server.call("RQ.EXTEND", QUEUE, name, "LEASE", LEASE, *held)


def find_files(folder, limit):
    """Paths of readable regular files, as bytes, and whether there are more than `limit`."""
    found = []
    for parent, folders, files in os.walk(os.fsencode(folder)):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(parent, name)
            if os.path.isfile(path) and not os.path.islink(path) and os.access(path, os.R_OK):
                if len(found) == limit:
                    return found, True
                found.append(path)
    return found, False


def sha256sum(paths):
    """What the tool says, by path. -z: names are taken and given as they are."""
    digests = {}
    for start in range(0, len(paths), 200):
        output = subprocess.run([b"sha256sum", b"-z", b"--", *paths[start : start + 200]], stdout=subprocess.PIPE, check=True).stdout
        for line in output.split(b"\0")[:-1]:
            digests[line[66:]] = line[:64]
    return digests


class Demo:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="rq-demo-")
        self.path = os.path.join(self.folder, "socket")
        self.processes = []
        self.server = None
        self.shown = 0.0

    def start(self, *command):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def start_server(self):
        log = os.path.join(self.folder, "log")
        settings = ["--port", "0", "--unixsocket", self.path, "--dir", self.folder, "--logfile", log, "--save", "", "--appendonly", "yes"]
        process = self.start("redis-server", *settings, "--loadmodule", os.path.abspath(self.options.module))
        while True:
            try:
                self.server = Connection(self.path)
                self.server.call("RQ.QUEUES")
                return
            except (OSError, ServerError):
                if process.poll() is not None:
                    with open(log, encoding="utf-8", errors="replace") as file:
                        sys.exit("the server did not start:\n" + file.read())
                time.sleep(0.01)

    def start_worker(self, name):
        return self.start(sys.executable, os.path.abspath(__file__), "--worker", self.path, name)

    def enqueue(self, paths):
        """All jobs, in batches, and one that cannot succeed. Gives the path of each id."""
        ids = {}
        for start in range(0, len(paths), 500):
            batch = paths[start : start + 500]
            ids.update(zip(self.server.call("RQ.MENQUEUE", QUEUE, "JOBS", len(batch), *batch), batch))
        missing = os.path.join(os.fsencode(self.folder), b"no such file")
        # First in line, so that its retries do not make the demo longer.
        ids[self.server.call("RQ.ENQUEUE", QUEUE, missing, "PRIORITY", 1)] = missing
        return ids, missing

    def kill_in_mid_work(self, process, name):
        """Ends a worker at a moment at which it holds jobs. Gives their ids."""
        while True:
            os.kill(process.pid, signal.SIGSTOP)  # so that what is seen is still true when it is killed
            jobs = self.server.call("RQ.LIST", QUEUE, "active", "WORKER", name)[1]
            if jobs:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                return [dict(zip(job[::2], job[1::2]))[b"id"] for job in jobs]
            os.kill(process.pid, signal.SIGCONT)
            if self.counts()[b"ready"] == 0:
                return []
            time.sleep(0.001)

    def counts(self):
        return self.server.call_map("RQ.STATS", QUEUE)

    def progress(self, counts, total, start, note):
        """One line that moves on a terminal; elsewhere a line a second."""
        now = time.monotonic()
        if now - self.shown < (0.05 if sys.stdout.isatty() else 1):
            return
        self.shown = now
        ended = counts[b"done"] + counts[b"dead"]
        bar = "#" * (30 * ended // total)
        line = f"[{bar:30}] {ended}/{total} jobs, {counts[b'active']} active, {ended / max(now - start, 0.001):,.0f}/s {note}"
        print(f"\r\x1b[K{line}" if sys.stdout.isatty() else line, end="" if sys.stdout.isatty() else "\n", flush=True)

    def run(self):
        limit = self.options.files
        paths, more = find_files(self.options.dir, limit)
        if not paths:
            sys.exit(f"no readable files below {self.options.dir}")
        print(f"{len(paths)} files below {self.options.dir}" + (f" (there are more; FILES={limit} is the limit)" if more else ""))
        self.start_server()
        self.server.call("RQ.QUEUE.SET", QUEUE, "LEASE", LEASE, "ATTEMPTS", 3, "BACKOFF", 100, 400)
        start = time.monotonic()
        ids, missing = self.enqueue(paths)
        total = len(ids)
        print(f"{total} jobs, one of them for a file that does not exist; {WORKERS} workers")

        victim = "worker-1"
        held, note = [], ""
        workers = {victim: self.start_worker(victim)}
        # Few jobs are done before anybody can look, so there the victim begins alone.
        killed = total < 500
        if killed:
            held = self.kill_in_mid_work(workers[victim], victim)
            note = f"({victim} killed, it held {len(held)})"
        workers.update((name, self.start_worker(name)) for name in (f"worker-{number}" for number in range(2, WORKERS + 1)))
        while True:
            counts = self.counts()
            self.progress(counts, total, start, note)
            if counts[b"done"] + counts[b"dead"] == total:
                break
            if not killed and counts[b"done"] >= total // 4:
                killed = True
                held = self.kill_in_mid_work(workers[victim], victim)
                note = f"({victim} killed, it held {len(held)})"
            for name, process in workers.items():
                if process.poll() is not None and not (killed and name == victim):
                    sys.exit(f"\n{name} ended by itself")
            time.sleep(0.02)
        seconds = time.monotonic() - start
        self.shown = 0.0
        self.progress(counts, total, start, note)
        if sys.stdout.isatty():
            print()
        return self.check(ids, missing, held, seconds)

    def check(self, ids, missing, held, seconds):
        wrong = []
        results = {}
        for job, path in ids.items():
            state, value, _ttl = self.server.call("RQ.RESULT", QUEUE, job) or (b"unknown", None, 0)
            if path == missing:
                if state != b"dead":
                    wrong.append(f"the job without a file is {state.decode()}")
            elif state != b"done":
                wrong.append(f"{path!r} is {state.decode()}")
            else:
                results[path] = value
        stats = self.counts()
        totals = dict(zip(stats[b"totals"][::2], stats[b"totals"][1::2]))
        recovered = sum(self.server.call_map("RQ.JOB", QUEUE, job)[b"crashes"] for job in held)
        truth = sha256sum(sorted(results))
        differing = sum(1 for path, digest in results.items() if truth.get(path) != digest)
        absent = len(ids) - 1 - len(results)
        twice = totals[b"done"] - len(results)

        rows = [
            ("jobs", f"{len(ids):,}"),
            ("done", f"{stats[b'done']:,}"),
            ("recovered", f"{recovered:,} (held by the killed worker, given out again by the server)"),
            ("dead", f"{stats[b'dead']:,} (no such file, after {totals[b'failed']} attempts)"),
            ("seconds", f"{seconds:.1f}"),
            ("jobs/s", f"{len(ids) / seconds:,.0f}"),
            ("digests", f"{len(results) - differing:,} equal to sha256sum, {differing} different, {absent} missing, {twice} twice"),
        ]
        print()
        for name, value in rows:
            print(f"  {name:10} {value}")
        print()
        if differing or absent or twice:
            wrong.append("the results are not what sha256sum says")
        if stats[b"dead"] != 1:
            wrong.append("exactly one job should be dead")
        if recovered < 1:
            wrong.append("no job was recovered: the worker could not be killed while it held one; try more files")
        for problem in wrong:
            print(f"WRONG: {problem}", file=sys.stderr)
        print("Everything is as it should be." if not wrong else "The demo FAILED.")
        return 1 if wrong else 0

    def clean(self):
        for process in reversed(self.processes):  # the server last
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def interrupted(_signal, _frame):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description="Hash files with several workers through a job queue in Redis.")
    home = os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")
    parser.add_argument("--module", help="the built module")
    parser.add_argument("--dir", default=os.path.join(home, "registry", "src"), help="the folder (default: sources of crates)")
    parser.add_argument("--files", type=int, default=FILES, help=f"at most so many files (default {FILES})")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return 0
    signal.signal(signal.SIGTERM, interrupted)
    demo = Demo(options)
    try:
        return demo.run()
    except KeyboardInterrupt:
        print("\ninterrupted")
        return 130
    finally:
        demo.clean()


if __name__ == "__main__":
    sys.exit(main())
