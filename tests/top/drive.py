#!/usr/bin/env python3
"""Drives rq-top in a terminal as a person would: presses keys, looks at the screen, at 80x24 and at 120x40.

Run it by `make test-top`. The terminal is tmux. Standard library only.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "workers"))
from check import PATIENCE, Server, Wrong, expect  # noqa: E402

SIZES = [(80, 24), (120, 40)]
ODD_NAME = b"odd\xff\x1b[2J"
ODD_SHOWN = "odd\\xff\\u{1b}[2J"


class Screen:
    """A terminal with rq-top in it."""

    number = 0

    def __init__(self, folder, size, command):
        # A server of its own, as one that was told to end may still be there.
        Screen.number += 1
        self.tmux = ["tmux", "-S", os.path.join(folder, f"tmux-{Screen.number}"), "-f", "/dev/null", "-u"]
        # Its exit code is shown behind it, and that the terminal is as before.
        program = f"{shlex.join(command)}; echo it ended with $?; exec sleep 1000"
        width, height = size
        environment = {**os.environ, "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        subprocess.run([*self.tmux, "new-session", "-d", "-x", str(width), "-y", str(height), program], env=environment, check=True)

    def call(self, *words):
        return subprocess.run([*self.tmux, *words], stdout=subprocess.PIPE, text=True, check=True).stdout

    def press(self, *keys):
        for key in keys:
            self.call("send-keys", key)

    def resize(self, width, height):
        self.call("resize-window", "-x", str(width), "-y", str(height))

    def text(self):
        return self.call("capture-pane", "-p")

    def shows(self, *texts):
        """Waits until all of these are on the screen at once."""
        end = time.monotonic() + PATIENCE
        while not all(text in (screen := self.text()) for text in texts):
            expect(f"{texts} should be on the screen, which is\n{screen}", time.monotonic() < end)
            time.sleep(0.02)
        return screen

    def line_of(self, text):
        [line] = [line for line in self.shows(text).splitlines() if text in line]
        return line

    def shows_counts(self, queue, *counts):
        """Waits until a line of the list of queues begins with this name and these numbers."""
        end = time.monotonic() + PATIENCE
        while self.line_of(f"{queue} ").split()[1 : 1 + len(counts)] != list(counts):
            expect(f"{queue} should have {counts}, and the screen is\n{self.text()}", time.monotonic() < end)
            time.sleep(0.02)

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], check=False, stderr=subprocess.DEVNULL)


class Drive:
    def __init__(self, options, size, folder):
        self.options, self.folder = options, folder
        self.server = Server(options.server, options.module, folder)
        self.server.kill()  # rq-top is there before it; now it is known which port is free
        self.screen = Screen(folder, size, [options.top, "-p", str(self.server.port)])
        self.connection = None

    def run(self):
        for step in (self.no_server, self.no_queue, self.queues, self.pause, self.jobs, self.small, self.restart, self.many,
                     self.quit, self.password, self.no_module):  # fmt: skip
            try:
                step()
            except Exception:
                print(f"at {step.__name__}:", file=sys.stderr)
                raise

    def call(self, *words):
        return self.connection.call(*words)

    def stats(self, queue):
        reply = self.call("RQ.STATS", queue)
        return dict(zip(reply[::2], reply[1::2]))

    def no_server(self):
        self.screen.shows("rq-top", "no connection, trying again each second")

    def no_queue(self):
        expect("the server starts", self.server.start())
        self.connection = self.server.connect()
        self.screen.shows("There is no queue in this database")

    def queues(self):
        self.call("RQ.ENQUEUE", "mail", "to: ada")
        self.call("RQ.ENQUEUE", ODD_NAME, "x")
        self.call("RQ.MENQUEUE", "mail", "GROUP", "example.com", "TENANT", "acme", "JOBS", 3, "x", "y", "z")
        self.call("RQ.GROUP.SET", "mail", "example.com", "TENANT", "acme", "CONCURRENCY", 0)
        self.screen.shows("2 queues", "mail ", ODD_SHOWN)
        self.screen.shows_counts("mail", "4", "0")
        job, token, *_ = self.call("RQ.CLAIM", "mail", "host-1", "LEASE", 600_000)[0]
        self.screen.shows_counts("mail", "3", "1")
        self.screen.press("Enter")
        self.screen.shows("overview", "active 1", "per s")
        self.screen.press("Tab")
        self.screen.shows("host-1", "working")
        self.screen.press("3")
        self.screen.shows("acme/example.com", "concurrency")
        self.screen.press("j")
        self.screen.shows(job.decode())
        self.screen.press("Enter")
        self.screen.shows("to: ada", token.decode())
        self.screen.press("Left", "Left")
        self.screen.shows("2 queues", "/ find")
        self.call("RQ.FAIL", "mail", job, token, "ERROR", "mailbox full", "DEAD")

    def pause(self):
        self.screen.press("p")
        self.screen.shows("pause mail? y/n")
        self.screen.press("n")
        self.screen.shows("pause mail: not done")
        expect("it is not paused", self.stats("mail")[b"paused"] == 0)
        self.screen.press("p", "y")
        self.screen.shows("pause mail: done", "paused")
        expect("it is paused", self.stats("mail")[b"paused"] == 1)
        self.screen.press("r", "y")
        self.screen.shows("resume mail: done")
        expect("it is resumed", self.stats("mail")[b"paused"] == 0)

    def jobs(self):
        self.screen.press("j")
        self.screen.shows("dead 1", "failed")
        self.screen.press("R")
        self.screen.shows("redrive ", " of mail? y/n")
        self.screen.press("y")
        self.screen.shows("dead 0", "ready 4")
        expect("it is ready", self.stats("mail")[b"ready"] == 4)
        self.screen.press("s")
        self.screen.shows("cancelled 0", "No job is in this state")
        self.screen.press("Left")

    def small(self):
        for size in ((30, 6), (5, 2), (80, 24)):
            self.screen.resize(*size)
            self.screen.shows("rq-to")
        self.screen.shows("2 queues", "mail ")
        self.screen.press("?")
        self.screen.shows("What changes something is asked for first.")
        self.screen.press("Escape")

    def restart(self):
        self.server.kill()
        self.screen.shows("no connection, trying again each second", "mail ")
        expect("the server starts", self.server.start())
        self.connection = self.server.connect()
        self.screen.shows("2 queues", "mail ")
        self.call("RQ.ENQUEUE", "mail", "x")
        self.screen.shows_counts("mail", "5")

    def many(self):
        for start in range(0, 10_000, 1000):
            for number in range(start, start + 1000):
                self.connection.send("RQ.ENQUEUE", f"queue-{number:04}", "x")
            for _ in range(1000):
                self.connection.read()
        self.screen.shows("10,002 queues")
        self.screen.press("End")
        self.screen.shows("queue-9999")
        self.screen.press("/", *"e-5678")
        self.screen.shows("queue-5678")
        self.screen.press("Enter", "Enter")
        self.screen.shows("queue-5678   overview", "ready 1")
        self.screen.press("Left", "Escape")
        self.screen.shows("/ find")
        # What it asks for in a second, which TIME is once: a screen of queues, and a page of names.
        self.call("CONFIG", "RESETSTAT")
        deadline = time.monotonic() + PATIENCE
        while (calls := self.calls()).get("time", 0) < 4:
            expect("it asks for more", time.monotonic() < deadline)
            time.sleep(0.1)
        expect(f"a second costs little: {calls}", calls["RQ.STATS"] <= 5 * 40 and calls["RQ.QUEUES"] <= 5)
        expect(f"nothing else is asked: {calls}", set(calls) <= {"time", "RQ.STATS", "RQ.QUEUES", "info", "config|resetstat"})

    def calls(self):
        lines = self.call("INFO", "commandstats").decode().splitlines()
        pairs = [line.removeprefix("cmdstat_").split(":calls=") for line in lines if ":calls=" in line]
        return {name: int(rest.split(",")[0]) for name, rest in pairs}

    def quit(self):
        self.screen.press("q")
        screen = self.screen.shows("it ended with 0")
        expect(f"the terminal is as before, and not\n{screen}", "rq-top" not in screen)
        self.screen.close()

    def password(self):
        self.call("CONFIG", "SET", "requirepass", "secret")
        self.screen = Screen(self.folder, (80, 24), [self.options.top, "-p", str(self.server.port)])
        self.screen.shows("It wants a password")
        self.screen.close()
        self.screen = Screen(self.folder, (80, 24), [self.options.top, "--url", f"redis://:wrong@127.0.0.1:{self.server.port}"])
        self.screen.shows("password or user are wrong")
        self.screen.close()
        self.screen = Screen(self.folder, (80, 24), [self.options.top, "-p", str(self.server.port), "-a", "secret", "-n", "1"])
        self.screen.shows("There is no queue in this database")
        self.screen.close()

    def no_module(self):
        self.server.kill()
        folder = os.path.join(self.folder, "without-module")
        os.mkdir(folder)
        self.server = Server(self.options.server, None, folder)
        self.screen = Screen(self.folder, (80, 24), [self.options.top, "-p", str(self.server.port)])
        self.screen.shows("does not have the module rq")

    def close(self):
        self.screen.close()
        self.server.kill()


def main():
    parser = argparse.ArgumentParser(description="Drive rq-top in a terminal.")
    parser.add_argument("--module", required=True, help="the built module")
    parser.add_argument("--top", required=True, help="the built rq-top")
    parser.add_argument("--server", default="redis-server", help="the server's binary")
    options = parser.parse_args()
    if shutil.which("tmux") is None:
        sys.exit("*** rq-top WAS NOT TRIED: tmux is missing")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it cleans up
    failed = 0
    for size in SIZES:
        folder = tempfile.mkdtemp(prefix="rq-top-")
        drive = Drive(options, size, folder)
        try:
            drive.run()
            print(f"rq-top at {size[0]}x{size[1]} ok")
        except Wrong as wrong:
            failed += 1
            print(f"rq-top at {size[0]}x{size[1]} FAILED: {wrong}")
        finally:
            drive.close()
            shutil.rmtree(folder, ignore_errors=True)
    print(f"terminal: {len(SIZES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
