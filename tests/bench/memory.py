"""Bytes per job: what the server's memory grew by, and what MEMORY USAGE says of it."""

from rig import BATCH, PAYLOAD, Client, Server, Table, claim, each, fill, say, targets

RESULT = b"r" * 100
LATER = 3_600_000


def ready(client, jobs):
    fill(client, "queue", jobs)


def delayed(client, jobs):
    fill(client, "queue", jobs, "DELAY", LATER)


def active(client, jobs):
    fill(client, "queue", jobs)
    claim(client, "queue", jobs, "LEASE", LATER)


def done(client, jobs):
    fill(client, "queue", jobs)
    each(client, (("RQ.ACK", "queue", *job, "RESULT", RESULT) for job in claim(client, "queue", jobs, "LEASE", LATER)))


def dead(client, jobs):
    client.call("RQ.QUEUE.SET", "queue", "KEEPDEAD", "none")
    fill(client, "queue", jobs)
    each(client, (("RQ.FAIL", "queue", *job, "ERROR", "no such mailbox", "DEAD")
                  for job in claim(client, "queue", jobs, "LEASE", LATER)))


def a_list(client, jobs):
    each(client, (("LPUSH", "queue", PAYLOAD) for _ in range(jobs)))


def a_stream(client, jobs):
    each(client, (("XADD", "queue", "*", "p", PAYLOAD) for _ in range(jobs)))


STATES = {
    "ready": ready,
    "delayed": delayed,
    "active": active,
    "done, with a result of 100 bytes": done,
    "dead, with an error of 15 bytes": dead,
    "a list": a_list,
    "a stream": a_stream,
}
OURS = list(STATES)[:5]
MOST = {"ready": 150, "delayed": 190, "active": 190}


def once(server, fill, jobs):
    """Bytes per job: grown by, and shown by MEMORY USAGE."""
    server.client.call("FLUSHALL")
    before = server.memory()
    client = Client(server.port)
    fill(client, jobs)
    client.close()
    grown = server.memory() - before
    return grown / jobs, server.client.call("MEMORY", "USAGE", "queue", "SAMPLES", 0) / jobs


def measure(options, peers):
    # Tables grow in steps, so the worst of several sizes tells more than one size.
    sizes = [20_000, 30_000] if options.quick else [100_000, 130_000, 170_000, 220_000, 1_000_000]
    rows = []
    with Server() as server:
        for name, state in STATES.items():
            found = []
            for jobs in sizes:
                say(f"memory: {jobs:,} {name}")
                found.append(once(server, state, jobs // BATCH * BATCH))
            grown, shown = found[0]
            worst = max(size for size, _ in found)
            row = [name, f"{grown:.0f}", f"{worst:.0f}", "", ""]
            if name in OURS:
                off = max((shown / grown - 1 for grown, shown in found), key=abs)
                row[3:] = [f"{shown:.0f}", f"{off:+.1%}"]
                targets.check(f"MEMORY USAGE, {name}: off by, %", abs(off) * 100, most=5)
            if name in MOST:
                targets.check(f"bytes per job, {name}", grown, most=MOST[name])
            rows.append(row)
    for peer in peers.on_redis():
        say(f"memory: {peer.name}")
        rows.append(peer.memory_row(options.quick))
    yield Table("Memory: bytes per job with a payload of 100 bytes",
                ["", f"{sizes[0]:,} jobs", f"most, {sizes[0]:,} to {sizes[-1]:,}", "MEMORY USAGE", "off at most"], rows)
