"""Worker machines that start at once while others work, in a database with many foreign keys: the module's backend and the
package's reliable one, each with its own server, the same jobs, and the package's own runner and workers."""

import collections
import json
import os
import statistics
import sys

from common import expect, expect_equal, since, table, until
from django_lightweight_queue import app_settings
from django_lightweight_queue.backends.reliable_redis import ReliableRedisBackend
from django_lightweight_queue.job import Job
from rq_backend import RqBackend, pairs

MANAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "project", "manage.py")
QUEUE = "machines"
WORKING, STARTING = 3, 20  # machines of a worker each
MILLISECONDS = 20  # that a job takes
BATCH = 60  # jobs that wait at least until all machines are up
REST = 400  # jobs for all of them, then
ORPHANS = 30  # jobs that workers hold which no machine has any more, one each
FOREIGN = 100_000, 1_000_000  # keys of others in the database; with --full


class Side:
    """One backend with its server."""

    def __init__(self, stage, name, backend, path, module):
        self.stage, self.name = stage, name
        self.server = stage.server("--enable-debug-command", "yes", "--slowlog-log-slower-than", 0, "--slowlog-max-len", 100_000, module=module)
        app_settings.REDIS_PORT = self.server.port
        self.backend = backend()
        self.notes_path, self.clock = stage.folder + f"/notes-{name}", stage.folder + f"/clock-{name}"
        self.environment = {"RQ_TRIAL_BACKEND": path, "RQ_TRIAL_PORT": str(self.server.port), "RQ_TRIAL_NOTES": self.notes_path,
                            "RQ_TRIAL_CLOCK": self.clock, "RQ_TRIAL_WORKERS": json.dumps({QUEUE: WORKING + STARTING})}  # fmt: skip
        self.runners, self.jobs = [], 0

    def notes(self, what):
        if not os.path.exists(self.notes_path):
            return []
        with open(self.notes_path, encoding="utf-8") as file:
            return [line[1] for line in map(json.loads, file) if line[0] == what]

    def processes(self):
        """Of the workers that have begun a job."""
        if not os.path.exists(self.notes_path):
            return set()
        with open(self.notes_path, encoding="utf-8") as file:
            return {line[-1] for line in map(json.loads, file)}

    def said(self):
        if not os.path.exists(self.clock):
            return []
        with open(self.clock, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def start(self, machine):
        # In pools machine n has the worker of number n - 1; all of them know how many there are.
        command = [sys.executable, MANAGE, "queue_runner", "--only-queue", QUEUE, "--machine", machine, "--of", WORKING + STARTING]
        self.runners.append(self.stage.start(list(map(str, command)), self.environment, log=f"runners-{self.name}.log"))

    def run(self, foreign):
        self.server.call("DEBUG", "POPULATE", foreign, "foreign", 20)
        for machine in range(1, WORKING + 1):
            self.start(machine)
        until("work goes on", lambda: self.are_at_work(WORKING), 120)
        self.enqueue(BATCH + ORPHANS)
        for worker in range(ORPHANS):
            self.backend.dequeue(QUEUE, 101 + worker, 1)
        before, ended = self.server.spent(), len(self.notes("ended"))
        self.server.call("SLOWLOG", "RESET")
        for machine in range(WORKING + 1, WORKING + STARTING + 1):
            self.start(machine)
        until("all machines are at work", lambda: self.are_at_work(WORKING + STARTING), 300)
        self.enqueue(REST)
        until("all is done", lambda: len(set(self.notes("ended"))) == self.jobs and self.backend.length(QUEUE) == 0, 300)
        until("nobody is at work", lambda: len(self.notes("began")) == len(self.notes("ended")), 60)
        self.spent = since(before, self.server.spent())
        self.window = len(self.notes("ended")) - ended
        self.longest = self.slowest()
        for runner in self.runners:
            self.stage.end(runner)

    def enqueue(self, count):
        jobs = [Job("shop.tasks.work", (self.jobs + number, MILLISECONDS), {}) for number in range(count)]
        self.backend.bulk_enqueue(jobs, QUEUE)
        self.jobs += count

    def are_at_work(self, machines):
        """Whether the workers of so many have begun a job; until then there are jobs."""
        if self.backend.length(QUEUE) < BATCH:
            self.enqueue(BATCH)
        return len(self.processes()) == machines

    def startups(self):
        """How long each machine took from the start-up of its queue to the start of its first worker, in ms."""
        began, took = {}, {}
        for pid, when, text in self.said():
            if text.startswith("Running startup"):
                began[pid] = when
            elif text.startswith("Starting worker #"):
                took[pid] = (when - began[pid]) * 1000
        return took

    def startup_times(self):
        """Median and longest of those that started at once."""
        first = {runner.pid for runner in self.runners[:WORKING]}
        times = [took for pid, took in self.startups().items() if pid not in first]
        return statistics.median(times), max(times)

    def calls(self, names):
        """Calls of these commands, and their µs at the event loop, since the machines started."""
        found = [self.spent[name] for name in names if name in self.spent]
        return sum(calls for calls, _usec in found), sum(usec for _calls, usec in found)

    def slowest(self):
        """The longest single call of each command, in µs."""
        found = collections.Counter()
        for _id, _at, usec, words, *_ in self.server.call("SLOWLOG", "GET", -1):
            name = words[0].decode().lower()
            found[name] = max(found[name], usec)
        return found

    def lost_and_doubled(self):
        times = collections.Counter(self.notes("ended"))
        return self.jobs - len(times), sum(count > 1 for count in times.values())

    def check(self):
        """No job lost or doubled."""
        for what in ("began", "ended"):
            times = collections.Counter(self.notes(what))
            expect_equal(f"{self.name}: jobs that {what}", sorted(times), list(range(self.jobs)))
            expect_equal(f"{self.name}: jobs that {what} more than once", [job for job, count in times.items() if count > 1], [])


def without_heartbeat():
    """Of the workers that are gone nobody extends the leases; these are so long that only the start-up can take the jobs back."""
    backend = RqBackend()
    backend.lease = 3600_000
    backend.heartbeat = type("Nobody", (), {"held": {}})()
    return backend


# What the commands are for. Others that are not shown: those of this process, and of every new connection.
STARTUP = {"keys", "scan", "watch", "unwatch", "multi", "exec", "lrange", "rpush", "del", "rq.recover"}
WORK = {"exists", "lindex", "brpoplpush", "lrem", "rq.claim", "rq.ack", "rq.extend"}


def compare(stage, full):
    foreign = FOREIGN[full]
    sides = [Side(stage, "reliable", ReliableRedisBackend, "django_lightweight_queue.backends.reliable_redis.ReliableRedisBackend", False),
             Side(stage, "rq", without_heartbeat, "rq_backend.RqBackend", True)]  # fmt: skip
    for side in sides:
        side.run(foreign)
    ours = sides[1]
    ours.check()
    searched = [side.calls({"keys", "scan"})[0] for side in sides]
    expect_equal("SCAN and KEYS on the module's side", searched[1], 0)
    expect("the package's backend searches the keyspace", searched[0] >= STARTING)
    totals = pairs(ours.server.map("RQ.STATS", ours.backend._key(QUEUE))[b"totals"])
    expect_equal("jobs taken back", (totals[b"recovered"], totals[b"lapsed"]), (ORPHANS, 0))
    times = [side.calls(STARTUP) for side in sides]
    expect(f"the start-up costs the server less, µs: {times[1]}, {times[0]}", times[1][1] < times[0][1])

    def row(text, value):
        return [text, *(value(side) for side in sides)]

    def per_job(side):
        calls, usec = side.calls(WORK)
        return f"{calls / side.window:.1f}; {usec / side.window:.1f} µs"

    print(f"\n{STARTING} worker machines start at once, {WORKING} work, {foreign:,} foreign keys, {ORPHANS} jobs of workers that are gone\n")
    table(["", "reliable Redis backend", "RQ"], [
        row("jobs worked on", lambda side: f"{side.jobs:,}"),
        row("lost; done twice", lambda side: "{}; {}".format(*side.lost_and_doubled())),
        row("`KEYS` and `SCAN`", lambda side: str(side.calls({"keys", "scan"})[0])),
        row("commands of the start-ups", lambda side: f"{side.calls(STARTUP)[0]:,}"),
        row("their time at the event loop", lambda side: f"{side.calls(STARTUP)[1] / 1000:,.2f} ms"),
        row("longest of them", side_longest),
        row("start-up of a machine's queue, median; longest", lambda side: "{:,.1f}; {:,.1f} ms".format(*side.startup_times())),
        row("commands of a job; their time at the event loop", per_job),
    ])  # fmt: skip


def side_longest(side):
    usec, name = max((usec, name) for name, usec in side.longest.items() if name in STARTUP)
    return f"{usec / 1000:,.2f} ms (`{name.upper()}`)"
