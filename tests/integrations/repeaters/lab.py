"""What the trials and the comparison share: the forwarder's command line and workers beside a server, and a clock to be turned on."""

import os
import struct
import subprocess
import sys
import time

from common import ROOT, expect
from forwarder import Forwarder

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "forwarder.py")


class Lab:
    """A server, and what speaks to it."""

    def __init__(self, stage, *settings, environment=None):
        self.stage, self.server = stage, stage.server(*settings, environment=environment)
        self.url = f"redis://127.0.0.1:{self.server.port}"

    def forwarder(self, queue):
        return Forwarder(self.url, queue)

    def command(self, queue, *words):
        return [sys.executable, PROGRAM, "--redis", self.url, "--queue", queue, *words]

    def run(self, queue, *words, input=None, speed=1):
        environment = {**os.environ, "FORWARDER_SPEED": str(speed)}
        return subprocess.run(
            self.command(queue, *words), env=environment, input=input or "", capture_output=True, text=True, check=False
        )

    def cli(self, queue, *words, **more):
        """What the command prints; it must end well."""
        done = self.run(queue, *words, **more)
        expect(f"{' '.join(words)}:\n{done.stdout}{done.stderr}", done.returncode == 0)
        return done.stdout

    def worker(self, queue, *words):
        return self.stage.start(self.command(queue, "worker", *words), log=f"worker-{queue}")


class Clock:
    """The clocks of a server, which can be turned on: the wall clock, and the time since boot, as if it had slept."""

    def __init__(self, folder):
        self.library, self.file, self.shift = os.path.join(folder, "clock.so"), os.path.join(folder, "clock"), 0
        source = os.path.join(ROOT, "tests", "common", "clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.library, source], check=True)
        with open(self.file, "wb") as file:
            file.write(bytes(16))
        self.start = self.now()

    def environment(self):
        return {"LD_PRELOAD": self.library, "RQ_TEST_CLOCK": self.file}

    def now(self):
        """Unix ms by this clock."""
        return time.time() * 1000 + self.shift

    def hours(self):
        """Since it was made."""
        return (self.now() - self.start) / 3_600_000

    def turn_on_to(self, instant):
        self.shift += max(0, int(instant - self.now()))
        with open(self.file, "r+b") as file:  # the server has mapped it: not to be made anew
            file.write(struct.pack("=qq", self.shift * 1_000_000, self.shift * 1_000_000))
