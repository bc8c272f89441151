"""Saving and loading a million jobs, beside a million string keys with the same payloads."""

import json
import os
import random
import re
import time

from probe import Probe, percentiles
from rig import BATCH, Client, Server, Table, each, in_turns, median, say, targets


def random_bytes(number):
    return os.urandom(100)


def texts(number):
    """A hundred bytes or so of JSON."""
    return json.dumps({"user": number, "to": f"user{number}@example.com", "template": "welcome",
                       "nonce": random.getrandbits(64)}).encode()


def as_jobs(client, payloads):
    for start in range(0, len(payloads), BATCH):
        client.call("RQ.MENQUEUE", "queue", "JOBS", BATCH, *payloads[start:start + BATCH])


def as_strings(client, payloads):
    each(client, (("SET", b"job:%d" % number, payload) for number, payload in enumerate(payloads)))


KINDS = {"a queue": as_jobs, "string keys": as_strings}
QUEUE, STRINGS = KINDS
PAYLOADS = {"random bytes": random_bytes, "JSON": texts}
FORMS = {
    "RDB": ((), "BGSAVE", "rdb_bgsave_in_progress", "rdb_last_cow_size", "*.rdb"),
    "AOF without RDB preamble": (("--appendonly", "yes", "--aof-use-rdb-preamble", "no"), "BGREWRITEAOF",
                                 "aof_rewrite_in_progress", "aof_last_cow_size", "appendonlydir/*.base.*"),
}


def once(form, kind, payloads):
    """Seconds to save, bytes of the file, bytes of the child, latencies meanwhile in ns, seconds to load."""
    options, command, in_progress, child, files = FORMS[form]
    with Server(*options) as server:
        client = Client(server.port)
        KINDS[kind](client, payloads)
        client.close()
        if options:
            # The one that the start began.
            while any(server.client.info("persistence")[name] != "0" for name in (in_progress, "aof_rewrite_scheduled")):
                time.sleep(0.05)
        probe = Probe(server.port)
        begin = time.monotonic()
        server.client.call(command)
        while server.client.info("persistence")[in_progress] != "0":
            time.sleep(0.01)
        end = time.monotonic()
        probe.stop()
        memory = int(server.client.info("persistence")[child])
        digest = server.client.call("DEBUG", "DIGEST")
        size = sum(file.stat().st_size for file in server.path("").glob(files))
        server.stop()
        server.start()
        assert server.client.call("DEBUG", "DIGEST") == digest, "not what was saved"
        load = sum(float(took) for took in re.findall(r"DB loaded from .*: ([0-9.]+) seconds", server.log()))
        assert load > 0, f"no word of loading in the log:\n{server.log()}"
        return end - begin, size, memory, probe.between(begin * 1e9, end * 1e9), load


def measure(options, _peers):
    jobs, rounds = (50_000, 1) if options.quick else (1_000_000, 3)
    rounds = options.rounds or rounds
    cells = [(form, payload, kind) for form in FORMS for payload in PAYLOADS for kind in KINDS
             if form == "RDB" or payload == "JSON"]
    found = {cell: [] for cell in cells}
    for round, cell in in_turns(cells, rounds):
        form, payload, kind = cell
        say(f"disk, round {round + 1} of {rounds}: {form}, {jobs:,} payloads of {payload} in {kind}")
        found[cell].append(once(form, kind, [PAYLOADS[payload](number) for number in range(jobs)]))

    rows, pings = [], []
    for cell in cells:
        form, payload, kind = cell
        save, size, memory, load = (median(figures[column] for figures in found[cell]) for column in (0, 1, 2, 4))
        ping = percentiles([latency for figures in found[cell] for latency in figures[3]])
        rows.append([f"{form}, {payload}: {kind}", f"{save:.2f}", f"{size / jobs:.0f}", f"{memory / 1e6:.0f}", f"{load:.2f}"])
        pings.append([f"{form}, {payload}: {kind}", *(f"{figure:.2f}" for figure in ping)])
        if kind == QUEUE:
            beside = found[form, payload, STRINGS]
            of_ours = f"{form}, {payload}, beside string keys"
            targets.check(f"time to load, {of_ours}", load / median(figures[4] for figures in beside), most=1)
            targets.check(f"size of the file, {of_ours}", size / median(figures[1] for figures in beside), most=1.2)
            theirs = percentiles([latency for figures in beside for latency in figures[3]])
            targets.check(f"PING while saving, {of_ours}: p99.9 beyond, ms", ping[2] - theirs[2], most=5)
            targets.check(f"PING while saving, {of_ours}: longest beyond, ms", ping[3] - theirs[3], most=20)
    yield Table(f"Saving and loading {jobs:,} jobs",
                ["", "save, s", "bytes on disk, each", "memory of the child, MB", "load, s"], rows)
    yield Table("PING from another connection while that is saved; forking is most of the longest",
                ["ms", "p50", "p99", "p99.9", "longest"], pings)
