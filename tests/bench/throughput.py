"""Requests per second at depth, by the server's own redis-benchmark."""

import csv
import shutil
import subprocess

from rig import PAYLOAD, Failure, Server, Table, dies_with_parent, in_turns, median, say, targets

REQUESTS = {
    "PING": ["PING"],
    "SET": ["SET", "key", PAYLOAD],
    "LPUSH": ["LPUSH", "list", PAYLOAD],
    "XADD": ["XADD", "stream", "*", "p", PAYLOAD],
    "RQ.ENQUEUE": ["RQ.ENQUEUE", "queue", PAYLOAD],
}


def once(port, words, requests):
    """Requests per second."""
    out = subprocess.run(
        ["redis-benchmark", "-p", str(port), "-P", "64", "-c", "16", "-n", str(requests), "--csv", *words],
        check=True, capture_output=True, text=True, preexec_fn=dies_with_parent,
    ).stdout
    lines = [line for line in out.splitlines() if line.startswith('"')]
    return float(dict(zip(*csv.reader(lines)))["rps"])


def measure(options, _peers):
    if not shutil.which("redis-benchmark"):
        raise Failure("redis-benchmark is missing; on Debian it is in redis-tools")
    requests, rounds = (100_000, 3) if options.quick else (1_000_000, 7)
    rounds = options.rounds or rounds
    found = {name: [] for name in REQUESTS}
    with Server() as server:
        for round, name in in_turns(REQUESTS, rounds):
            say(f"throughput, round {round + 1} of {rounds}: {name}")
            server.client.call("FLUSHALL")
            found[name].append(once(server.port, REQUESTS[name], requests))
    rate = {name: median(figures) for name, figures in found.items()}
    rows = [[name, f"{rate[name]:,.0f}", f"{rate[name] / rate['LPUSH']:.2f}"] for name in REQUESTS]
    targets.check("RQ.ENQUEUE beside LPUSH, pipeline 64", rate["RQ.ENQUEUE"] / rate["LPUSH"], least=0.8)
    targets.check("RQ.ENQUEUE beside XADD, pipeline 64", rate["RQ.ENQUEUE"] / rate["XADD"], least=1.3)
    yield Table("Requests per second: redis-benchmark -P 64 -c 16", ["request", "per second", "to LPUSH"], rows)
