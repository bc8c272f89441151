"""The worst cases: what a PING from another connection feels of them.

Each case is a generator that prepares, yields, lets it happen, and ends when it is over, or yields again and clears away.
"""

import os
import time

from probe import Probe, percentiles
from rig import BATCH, Client, Server, Table, apart, claim, each, fill, in_turns, say, targets
from waiting import Crowd

NAME = "queue"
BIG = 7 * 1024 * 1024


def until(reached):
    while not reached():
        time.sleep(0.02)


def has_none(server, state):
    """Tells whether the queue has no job in a state."""
    return lambda: server.client.map("RQ.STATS", NAME)[state] == 0


def nobody_waits(server):
    return lambda: server.client.info("clients")["blocked_clients"] == "0"


def prepared(server, prepare, *arguments):
    """Prepares on a connection that is closed again, so that its buffers are not what is measured."""
    client = Client(server.port)
    prepare(client, *arguments)
    client.close()


class TooSlow(Exception):
    """What was to be prepared was not ready in time."""


class Together:
    """An instant far enough ahead to prepare for it."""

    patience = 1

    def __init__(self, jobs, per_second):
        self.at = time.time() + (2 + jobs / per_second) * self.patience

    def ms_left(self):
        left = round((self.at - time.time()) * 1_000)
        if left < 100:
            raise TooSlow
        return left

    def wait(self, is_over):
        """Until shortly before it. What then asks whether it is over shall not be slow for being asked for the first time."""
        time.sleep(max(self.at - 0.1 - time.time(), 0))
        is_over()
        time.sleep(max(self.at - 0.01 - time.time(), 0))


def idle(server, jobs):
    yield
    time.sleep(5)


def due_together(server, jobs):
    instant = Together(jobs, 100_000)
    prepared(server, fill, NAME, jobs, "AT", round(instant.at * 1_000))
    instant.ms_left()
    is_over = has_none(server, "delayed")
    instant.wait(is_over)
    yield
    until(is_over)


def lapse_together(server, jobs):
    jobs //= 10
    prepared(server, fill, NAME, jobs)
    instant = Together(jobs, 50_000)
    for _ in range(0, jobs, BATCH):
        prepared(server, claim, NAME, BATCH, "LEASE", instant.ms_left())
    is_over = has_none(server, "active")
    instant.wait(is_over)
    yield
    until(is_over)


def expire_together(server, jobs):
    prepared(server, fill, NAME, jobs)
    instant = Together(jobs, 20_000)
    for _ in range(0, jobs, 10 * BATCH):
        client = Client(server.port)
        taken = claim(client, NAME, 10 * BATCH)
        each(client, (("RQ.ACK", NAME, *job, "RESULT", "r" * 100, "TTL", instant.ms_left()) for job in taken))
        client.close()
    is_over = has_none(server, "done")
    instant.wait(is_over)
    yield
    until(is_over)


def strings(client, jobs):
    """As many keys of the same bytes: what the server itself makes of the case."""
    payload = os.urandom(100)
    each(client, (("SET", b"key:%d" % n, payload) for n in range(jobs)))


def freed(prepare, *words):
    def case(server, jobs):
        client = Client(server.port)
        prepare(client, jobs)
        client.close()
        yield
        server.client.call(*words)
        until(lambda: server.client.info("memory")["lazyfree_pending_objects"] == "0")

    return case


def a_queue(client, jobs):
    fill(client, NAME, jobs)


def recover_pages(server, jobs):
    jobs //= 10
    prepared(server, fill, NAME, jobs)
    prepared(server, claim, NAME, jobs)
    yield
    apart(recover_all, server.port)


def recover_all(port):
    client = Client(port)
    while client.call("RQ.RECOVER", NAME, "WORKERS", 1, "worker", "COUNT", BATCH)[1]:
        pass


def list_pages(server, jobs):
    prepared(server, fill, NAME, jobs)
    yield
    seen = apart(list_all, server.port)
    assert seen == jobs, f"{seen} of {jobs} jobs listed"


def list_all(port):
    client, cursor, seen = Client(port), b"0", 0
    while True:
        cursor, jobs = client.call("RQ.LIST", NAME, "ready", "CURSOR", cursor, "COUNT", BATCH)
        seen += len(jobs)
        if cursor in (b"0", 0):
            return seen


def purge_pages(server, jobs):
    prepared(server, fill, NAME, jobs)
    yield
    apart(purge_all, server.port)


def purge_all(port):
    client = Client(port)
    while client.call("RQ.PURGE", NAME, "ready", "COUNT", BATCH)[1]:
        pass


def range_pages(server, jobs):
    prepared(server, lambda client: each(client, (("RPUSH", "list", "x" * 100) for _ in range(jobs))))
    yield
    apart(range_all, server.port, jobs)


def range_all(port, jobs):
    client = Client(port)
    for start in range(0, jobs, BATCH):
        client.call("LRANGE", "list", start, start + BATCH - 1)


def big_jobs(server, jobs):
    yield
    apart(pass_big_jobs, server.port)


def pass_big_jobs(port):
    client, big = Client(port), os.urandom(BIG)
    for _ in range(50):
        client.call("RQ.ENQUEUE", NAME, big)
        id, token, payload, _ = client.call("RQ.CLAIM", NAME, "worker")[0]
        client.call("RQ.ACK", NAME, id, token, "RESULT", payload)
        client.call("RQ.RESULT", NAME, id)
        client.call("RQ.PURGE", NAME, "done")


def big_strings(server, jobs):
    yield
    apart(pass_big_strings, server.port)


def pass_big_strings(port):
    client, big = Client(port), os.urandom(BIG)
    for _ in range(50):
        client.call("SET", "payload", big)
        client.call("SET", "result", client.call("GET", "payload"))
        client.call("GET", "result")
        client.call("UNLINK", "payload", "result")


def crowd_served(server, jobs):
    """All of them at once: what waits for a paused queue that has work."""
    workers = jobs // 100
    server.client.call("RQ.PAUSE", NAME)
    crowd = Crowd(server, ("RQ.CLAIM", NAME, "worker", "BLOCK", 0), workers)
    prepared(server, fill, NAME, workers)
    yield
    server.client.call("RQ.RESUME", NAME)
    until(nobody_waits(server))
    yield
    crowd.leave()


def lists_served(server, jobs):
    workers = jobs // 100
    crowd = Crowd(server, ("BLPOP", NAME, 0), workers)
    client = Client(server.port)
    yield
    client.call("RPUSH", NAME, *["x" * 100] * workers)
    until(nobody_waits(server))
    yield
    crowd.leave()


def crowd_gives_up(server, jobs):
    """Their time is up at the same instant."""
    instant = Together(jobs // 100, 2_000)
    crowd = Crowd(server, lambda: ("RQ.CLAIM", NAME, "worker", "BLOCK", instant.ms_left()), jobs // 100)
    is_over = nobody_waits(server)
    instant.wait(is_over)
    yield
    until(is_over)
    yield
    crowd.leave()


def lists_give_up(server, jobs):
    instant = Together(jobs // 100, 2_000)
    crowd = Crowd(server, lambda: ("BLPOP", NAME, instant.ms_left() / 1_000), jobs // 100)
    is_over = nobody_waits(server)
    instant.wait(is_over)
    yield
    until(is_over)
    yield
    crowd.leave()


IDLE = "nothing: an idle server"
# What it is, with the number of jobs filled in, and how
CASES = {
    IDLE: idle,
    "{jobs} delayed jobs come due in one millisecond": due_together,
    "{tenth} leases lapse together": lapse_together,
    "{jobs} results expire together": expire_together,
    "UNLINK of a queue of {jobs} jobs": freed(a_queue, "UNLINK", NAME),
    "FLUSHALL ASYNC, the same": freed(a_queue, "FLUSHALL", "ASYNC"),
    "FLUSHALL ASYNC of {jobs} string keys": freed(strings, "FLUSHALL", "ASYNC"),
    "FLUSHALL, the same queue": freed(a_queue, "FLUSHALL"),
    "FLUSHALL of {jobs} string keys": freed(strings, "FLUSHALL"),
    "RQ.RECOVER of {tenth} jobs, 1,000 a call": recover_pages,
    "RQ.LIST through {jobs} jobs, 1,000 a call": list_pages,
    "LRANGE through {jobs} elements, 1,000 a call": range_pages,
    "RQ.PURGE of {jobs} jobs, 1,000 a call": purge_pages,
    "payloads and results of 7 MiB": big_jobs,
    "SET and GET of strings of 7 MiB": big_strings,
    "{crowd} waiting workers are served together": crowd_served,
    "{crowd} waiting workers give up together": crowd_gives_up,
    "{crowd} BLPOP are served by one RPUSH": lists_served,
    "{crowd} BLPOP give up together": lists_give_up,
}
# What the server does with its own; not ours to answer for. A FLUSHALL that is not to be ASYNC is the user's choice.
BESIDE = {range_pages, big_strings, lists_served, lists_give_up}


def once(case, jobs):
    """Latencies in ns while it happened, and how long that took, s."""
    with Server() as server:
        probe = Probe(server.port)
        try:
            steps = case(server, jobs)
            next(steps)
            begin = time.monotonic()
            next(steps, None)
            took = time.monotonic() - begin
            # So that a part in a thousand means something.
            time.sleep(max(1 - took, 0))
            end = time.monotonic()
            next(steps, None)
        finally:
            probe.stop()
    return probe.between(begin * 1e9, end * 1e9), took


def patiently(case, jobs):
    """Takes longer to prepare on a machine that needs it."""
    while True:
        try:
            return once(case, jobs)
        except TooSlow:
            Together.patience *= 2


def measure(options, _peers):
    jobs, rounds = (50_000, 1) if options.quick else (1_000_000, 3)
    rounds = options.rounds or rounds
    words = {"jobs": f"{jobs:,}", "tenth": f"{jobs // 10:,}", "crowd": f"{jobs // 100:,}"}
    cases = {name.format(**words): case for name, case in CASES.items()
             if options.only in name.format(**words) or name == IDLE}
    found = {name: ([], []) for name in cases}
    for round, name in in_turns(cases, rounds):
        say(f"worst cases, round {round + 1} of {rounds}: {name}")
        latencies, took = patiently(cases[name], jobs)
        found[name][0].extend(latencies)
        found[name][1].append(took)
    rows = []
    quiet = percentiles(found[IDLE][0])
    for name, (latencies, took) in found.items():
        figures = percentiles(latencies)
        rows.append([name, f"{max(took):.2f}", *(f"{figure:.2f}" for figure in figures)])
        if name != IDLE and cases[name] not in BESIDE and "string keys" not in name and "FLUSHALL," not in name:
            targets.check(f"PING, {name}: p99.9 beyond idle, ms", figures[2] - quiet[2], most=5)
            targets.check(f"PING, {name}: longest beyond idle, ms", figures[3] - quiet[3], most=20)
    yield Table("PING from another connection, every millisecond, while it happens",
                ["ms", "over after, s", "p50", "p99", "p99.9", "longest"], rows)
