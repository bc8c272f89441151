"""What every part needs: servers of our own, a cheap client, a probe, medians, tables."""

import ctypes
import multiprocessing
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import hiredis

PAYLOAD = b"x" * 100
BATCH = 1_000

# Forked, so that what is given to a process of ours need not be picklable.
PROCESSES = multiprocessing.get_context("fork")


def dies_with_parent():
    """To be run in a child before it becomes a server: it shall not outlive this program, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    # Ctrl-C is for this program, which stops its servers.
    os.setpgid(0, 0)


def as_child():
    """To be run first in a process forked from this program."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    dies_with_parent()


# For a server that keeps the memory that it frees: what the kernel, and below it a hypervisor, take to hand out a page, some
# microseconds and on some days ten times that, is not what is to be compared. (The second: as Redis builds its own jemalloc.)
KEEPS_MEMORY = dict.fromkeys(("MALLOC_CONF", "JE_MALLOC_CONF"), "dirty_decay_ms:-1,muzzy_decay_ms:-1")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Failure(SystemExit):
    """The benchmark cannot go on."""


class Client:
    """One connection. Commands are sequences of bytes, str, int or float."""

    def __init__(self, port, timeout=600):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = hiredis.Reader()

    def reply(self):
        while True:
            reply = self.reader.gets()
            if reply is not False:
                return reply
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the server closed the connection")
            self.reader.feed(data)

    def many(self, commands):
        """Sends all, then takes the replies; an error reply ends the benchmark."""
        self.socket.sendall(b"".join(map(hiredis.pack_command, commands)))
        replies = [self.reply() for _ in commands]
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise Failure(f"error: {reply}")
        return replies

    def call(self, *words):
        return self.many([words])[0]

    def info(self, section):
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def map(self, *words):
        """The reply of a command that answers with keys and values."""
        flat = self.call(*words)
        return {key.decode(): value for key, value in zip(flat[::2], flat[1::2])}

    def close(self):
        self.socket.close()


class Server:
    """A server with the module, that keeps nothing unless told so."""

    binary = "redis-server"
    module = None
    running = set()

    def __init__(self, *options, folder=None, environment=None):
        self.folder = folder or tempfile.TemporaryDirectory(prefix="rq-bench-")
        self.options, self.environment, self.client = options, {**os.environ, **(environment or {})}, None
        self.start()

    def start(self):
        self.port = free_port()
        log = self.path("log")
        if log.exists():
            log.unlink()
        self.process = subprocess.Popen(
            [self.binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.path(""), "--save", "",
             "--logfile", "log", "--loadmodule", self.module, "--maxclients", "12000", "--enable-debug-command", "yes",
             *self.options],
            preexec_fn=dies_with_parent, env=self.environment,
        )
        Server.running.add(self)
        deadline = time.monotonic() + 300
        while True:
            try:
                self.client = Client(self.port)
                # While it loads, it answers with an error.
                self.client.socket.sendall(hiredis.pack_command(("PING",)))
                if self.client.reply() == b"PONG":
                    return
                self.client.close()
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"the server did not start:\n{self.log()[-2_000:]}")
            time.sleep(0.02)

    def path(self, name):
        return pathlib.Path(self.folder.name) / name

    def log(self):
        return self.path("log").read_text(errors="replace")

    def memory(self):
        """Bytes in use, when this is the only client."""
        while int(self.client.info("clients")["connected_clients"]) > 1:
            time.sleep(0.01)
        return int(self.client.info("memory")["used_memory"])

    def cpu(self):
        """Seconds of processor time of all of its threads."""
        info = self.client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def event_loop_us(self, commands=None):
        """Microseconds in commands since CONFIG RESETSTAT, and calls: of these, or of all but our own questions."""
        ours = {"info", "config|resetstat", "debug", "flushall", "client|list"}
        usec = calls = 0
        for name, value in self.client.info("commandstats").items():
            name = name.removeprefix("cmdstat_").lower()
            if name in commands if commands else name not in ours:
                stat = dict(part.split("=") for part in value.split(","))
                usec, calls = usec + int(stat["usec"]), calls + int(stat["calls"])
        return usec, calls

    @classmethod
    def floor(cls):
        """Where the module of floor.rs is built to."""
        module = pathlib.Path(cls.module)
        return module.parent / "examples" / f"libfloor{module.suffix}"

    def stop(self):
        if self in Server.running:
            Server.running.discard(self)
            if self.client:
                self.client.close()
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @staticmethod
    def stop_all():
        for server in list(Server.running):
            server.stop()


def fill(client, queue, jobs, *options):
    """Enqueues so many jobs, a thousand a call."""
    for start in range(0, jobs, BATCH):
        count = min(BATCH, jobs - start)
        client.call("RQ.MENQUEUE", queue, *options, "JOBS", count, *[PAYLOAD] * count)


def claim(client, queue, jobs, *options):
    """Claims so many jobs, a thousand a call: pairs of id and token."""
    taken = []
    while len(taken) < jobs:
        taken += [job[:2] for job in client.call("RQ.CLAIM", queue, "worker", "COUNT", BATCH, *options)]
    return taken


def each(client, commands):
    """Pipelines any number of commands."""
    batch = []
    for command in commands:
        batch.append(command)
        if len(batch) == BATCH:
            client.many(batch)
            batch = []
    if batch:
        client.many(batch)


def apart(function, *arguments):
    """Runs it in a process of its own, that steps back behind servers and probes. Its result."""
    ours, theirs = PROCESSES.Pipe()

    def run():
        as_child()
        os.nice(10)
        theirs.send(function(*arguments))

    process = PROCESSES.Process(target=run)
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        raise Failure(f"{function.__name__} failed") from None
    finally:
        process.terminate()
        process.join()


class Say:
    """Progress on one line of the terminal."""

    def __init__(self):
        self.width = 0

    def __call__(self, text=""):
        if sys.stderr.isatty():
            print(f"\r{text:{self.width}}", end="" if text else "\r", file=sys.stderr, flush=True)
            self.width = len(text)
        elif text:
            print(f"  {text}", file=sys.stderr, flush=True)


say = Say()


def in_turns(names, rounds):
    """(round, name), each round beginning with another one: what the one before left is not always the same one's luck."""
    names = list(names)
    for round in range(rounds):
        for at in range(len(names)):
            yield round, names[(round + at) % len(names)]


median = statistics.median


class Table:
    """A table of Markdown, with what is to be said of it."""

    def __init__(self, title, header, rows, note=""):
        self.title, self.header, self.rows, self.note = title, header, rows, note

    def __str__(self):
        lines = [f"**{self.title}**", "", f"| {' | '.join(self.header)} |", "|---" + "|---:" * (len(self.header) - 1) + "|"]
        lines += [f"| {' | '.join(map(str, row))} |" for row in self.rows]
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines)


class Targets:
    """What was aimed at, and what came out."""

    def __init__(self):
        self.lines = []

    def check(self, what, figure, most=None, least=None):
        is_met = figure <= most if most is not None else figure >= least
        bound = f"≤ {most:g}" if most is not None else f"≥ {least:g}"
        self.lines.append((is_met, f"{'met   ' if is_met else 'MISSED'}  {what}: {figure:.2f} (aim {bound})"))


targets = Targets()
