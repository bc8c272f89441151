"""What the trials of all systems share: servers and processes that end with the trial, waiting, and tables.

A trial is `with Stage(options) as stage:`. It has a temporary folder, and all that it starts ends with it, also at Ctrl-C.
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "demo"))
from demo import Connection, ServerError  # noqa: E402

PATIENCE = 60  # seconds until something is taken to hang


class Wrong(Exception):
    """Something is not as it should be."""


def expect(what, is_so):
    if not is_so:
        raise Wrong(what)


def expect_equal(what, found, wanted):
    if found != wanted:
        raise Wrong(f"{what}: {found!r}, not {wanted!r}")


def until(what, condition, patience=PATIENCE):
    """Waits for a condition; gives what it gives."""
    end = time.monotonic() + patience
    while not (found := condition()):
        expect(f"{what}: not within {patience} s", time.monotonic() < end)
        time.sleep(0.01)
    return found


def options(description, more=lambda parser: None):
    """What every `run` is told. `more` adds options to the parser."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--module", required=True, type=os.path.abspath, help="the built module")
    parser.add_argument("--server", default="redis-server", help="the server's binary")
    parser.add_argument("--packages", default="", help="folder of what pip has installed for this system")
    parser.add_argument("--full", action="store_true", help="the comparison in the size that the documentation shows")
    more(parser)
    return parser.parse_args()


class Server:
    """A server on a free port of 127.0.0.1, with the module if one is given. `path` is its Unix socket."""

    def __init__(self, binary, module, folder, *settings, environment=None):
        self.environment = {**os.environ, **(environment or {})}
        self.folder, self.path, self.process = folder, os.path.join(folder, "socket"), None
        self.log = os.path.join(folder, "log")
        self.command = [binary, "--bind", "127.0.0.1", "--unixsocket", self.path, "--dir", folder, "--logfile", self.log,
                        "--save", "", *map(str, settings)]  # fmt: skip
        if module is not None:
            self.command += ["--loadmodule", module]
        self.port = None
        while self.port is None:
            port = free_port()
            if self.start(port):
                self.port = port
        self.connection = self.connect()

    def start(self, port):
        """Whether it came up; if not, another was quicker to take the port."""
        open(self.log, "w", encoding="utf-8").close()
        self.process = subprocess.Popen(
            [*self.command, "--port", str(port)], env=self.environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
        while True:
            try:
                self.connect().call("PING")
                return True
            except (OSError, ServerError, EOFError):
                if self.process.poll() is not None:
                    with open(self.log, encoding="utf-8", errors="replace") as file:
                        text = file.read()
                    expect(f"the server did not start:\n{text}", "Address already in use" in text)
                    return False
                time.sleep(0.01)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def restart(self):
        """kill -9, and up again on the same port. What it keeps is a matter of the settings."""
        self.kill()
        expect("its port is still free", self.start(self.port))
        self.connection = self.connect()

    def connect(self):
        return Connection(self.path)

    def call(self, *words):
        return self.connection.call(*words)

    def map(self, *words):
        return self.connection.call_map(*words)

    def info(self, section):
        """A section of INFO, as texts."""
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def spent(self):
        """What commands took so far: {name: (calls, microseconds in the event loop)}, names as `rq.claim`, `config|get`."""
        found = {}
        for key, text in self.info("commandstats").items():
            parts = dict(part.split("=") for part in text.split(","))
            found[key.removeprefix("cmdstat_").lower()] = (int(parts["calls"]), int(parts["usec"]))
        return found

    def net_output(self):
        """Bytes that it has sent so far."""
        return int(self.info("stats")["total_net_output_bytes"])


def since(before, after, leave_out=("info", "config|resetstat", "ping")):
    """The difference of two `Server.spent()`, of what was called in between."""
    found = {}
    for name, (calls, usec) in after.items():
        calls_before, usec_before = before.get(name, (0, 0))
        if calls != calls_before and name not in leave_out:
            found[name] = (calls - calls_before, usec - usec_before)
    return found


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Stage:
    """A temporary folder with all servers and processes of a trial, which end with it."""

    def __init__(self, chosen):
        self.options = chosen
        self.folder = tempfile.mkdtemp(prefix="rq-")
        self.servers, self.processes, self.logs = [], [], []

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it cleans up
        return self

    def __exit__(self, kind, _error, _trace):
        for process in self.processes:
            self.end(process)
        for server in self.servers:
            server.kill()
        if kind not in (None, KeyboardInterrupt, SystemExit):
            for path in [*self.logs, *(server.log for server in self.servers)]:
                with open(path, encoding="utf-8", errors="replace") as file:
                    text = file.read()[-3000:]
                print(f"--- {os.path.basename(path)}\n{text}", file=sys.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)

    def server(self, *settings, module=True, environment=None):
        folder = os.path.join(self.folder, f"server-{len(self.servers)}")
        os.mkdir(folder)
        server = Server(self.options.server, self.options.module if module else None, folder, *settings, environment=environment)
        self.servers.append(server)
        return server

    def start(self, command, environment=None, cwd=None, log=None):
        """A process in a group of its own; what it says goes to the file `log` of the folder."""
        path = os.path.join(self.folder, log or "processes.log")
        if path not in self.logs:
            self.logs.append(path)
        with open(path, "ab") as file:
            process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, cwd=cwd, stdin=subprocess.DEVNULL,
                                       stdout=file, stderr=file, start_new_session=True)  # fmt: skip
        self.processes.append(process)
        return process

    def end(self, process):
        """kill -9 for all that is left of its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def table(head, rows):
    """Prints a Markdown table; numbers stand to the right."""
    cells = [[cell if isinstance(cell, str) else f"{cell:,}" for cell in row] for row in rows]
    rights = [all(not isinstance(row[column], str) or row[column] == "" for row in rows) for column in range(len(head))]
    print("| " + " | ".join(head) + " |")
    print("|" + "|".join("---:" if right else "---" for right in rights) + "|")
    for row in cells:
        print("| " + " | ".join(row) + " |")
    sys.stdout.flush()
