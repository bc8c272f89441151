"""What else is there must not cost: a loaded server beside an empty one, in turns."""

import contextlib
import random

from rig import BATCH, PAYLOAD, Client, Server, Table, claim, each, fill, median, say, targets
from waiting import Crowd

LATER = 3_600_000
STEPS = ("rq.enqueue", "rq.claim", "rq.ack")


def nothing(server, scale):
    yield


def crowd(server, scale):
    waiting = Crowd(server, ("RQ.CLAIM", "other", "worker", "BLOCK", 0), scale // 100)
    yield
    waiting.leave()


def many_workers(server, scale):
    """Each with a job of its own in hand."""
    client = Client(server.port)
    fill(client, "queue", scale // 100)
    each(client, (("RQ.CLAIM", "queue", f"worker-{number}", "LEASE", LATER) for number in range(scale // 100)))
    client.close()
    yield


def backlog(server, scale):
    """Ready, and lower than what comes."""
    client = Client(server.port)
    fill(client, "queue", scale)
    client.close()
    yield


def delayed(server, scale):
    client = Client(server.port)
    for _ in range(0, scale, BATCH):
        fill(client, "queue", BATCH, "DELAY", LATER + random.randrange(LATER))
    client.close()
    yield


def results(server, scale):
    client = Client(server.port)
    for _ in range(0, scale, 10 * BATCH):
        fill(client, "queue", 10 * BATCH)
        each(client, (("RQ.ACK", "queue", *job, "RESULT", "r" * 100, "TTL", LATER) for job in claim(client, "queue", 10 * BATCH)))
    client.close()
    yield


def foreign_keys(server, scale):
    server.client.call("DEBUG", "POPULATE", scale * 10, "key", 32)
    yield


def groups(server, scale):
    """One ready job in each."""
    client = Client(server.port)
    each(client, (("RQ.ENQUEUE", "queue", PAYLOAD, "GROUP", f"group-{number:07}") for number in range(scale // 10)))
    client.close()
    yield


def one_group(server, scale):
    """As many ready jobs, all of one group."""
    client = Client(server.port)
    fill(client, "queue", scale // 10, "GROUP", "group-0000000")
    client.close()
    yield


def plainly(number, scale):
    return ()


def urgently(number, scale):
    return "PRIORITY", 9


def to_any_group(number, scale):
    return "GROUP", f"group-{number * 7_919 % (scale // 10):07}"


def to_one_group(number, scale):
    return "GROUP", "group-0000000"


# what is there: how, with which options jobs are enqueued, and the same for the server beside it
LOADS = {
    "{hundredth} workers wait for another queue": (crowd, plainly, nothing, plainly),
    "{hundredth} workers each hold a job": (many_workers, plainly, nothing, plainly),
    "{scale} jobs of lower priority are ready": (backlog, urgently, nothing, urgently),
    "{scale} jobs are delayed": (delayed, plainly, nothing, plainly),
    "{scale} results are kept": (results, plainly, nothing, plainly),
    "{tenfold} other keys": (foreign_keys, plainly, nothing, plainly),
    "a job in each of {tenth} groups, beside as many in one": (groups, to_any_group, one_group, to_one_group),
}


def cycle(server, options_of, jobs, scale):
    """Event-loop µs of each step, per job."""
    client = server.client
    client.call("CONFIG", "RESETSTAT")
    each(client, (("RQ.ENQUEUE", "queue", PAYLOAD, *options_of(number, scale)) for number in range(jobs)))
    for _ in range(0, jobs, BATCH):
        claimed = client.many([("RQ.CLAIM", "queue", "worker")] * BATCH)
        client.many([("RQ.ACK", "queue", job[0], job[1]) for [job] in claimed])
    return [server.event_loop_us({step})[0] / jobs for step in STEPS]


def measure(options, _peers):
    scale, jobs, rounds = (50_000, 5_000, 2) if options.quick else (1_000_000, 20_000, 9)
    rounds = options.rounds or rounds
    words = {"scale": f"{scale:,}", "tenfold": f"{scale * 10:,}", "tenth": f"{scale // 10:,}", "hundredth": f"{scale // 100:,}"}
    rows = []
    for name, (load, way, beside, other_way) in LOADS.items():
        name = name.format(**words)
        if options.only not in name:
            continue
        found = ([], [])
        with Server() as loaded, Server() as empty:
            say(f"flat: {name}: preparing")
            prepared = load(loaded, scale), beside(empty, scale)
            for steps in prepared:
                next(steps)
            for round in range(-1, rounds):
                say(f"flat: {name}: round {round + 1} of {rounds}")
                pair = [(0, loaded, way), (1, empty, other_way)]
                for which, server, its_way in pair if round % 2 else reversed(pair):
                    figures = cycle(server, its_way, jobs, scale)
                    # The first one of each has memory to fetch.
                    if round >= 0:
                        found[which].append(figures)
            for steps in prepared:
                with contextlib.suppress(StopIteration):
                    next(steps)
        times = [[median(step) for step in zip(*figures)] for figures in found]
        ratio = sum(times[0]) / sum(times[1])
        targets.check(f"flat, {name}", ratio, most=1.15)
        rows.append([name, *(f"{ours:.2f} / {theirs:.2f}" for ours, theirs in zip(*times)),
                     f"{sum(times[0]):.2f} / {sum(times[1]):.2f}", f"{ratio:.2f}"])
    yield Table("What else is there: event-loop µs per job, beside a server without it",
                ["", "enqueue", "claim", "ack", "all", "ratio"], rows)
