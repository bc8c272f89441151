#!/usr/bin/env python3
"""Checks what monitoring is told, with the programs that it is for. `make test-monitoring` runs it.

- RQ.METRICS is read by Prometheus' own parser (prometheus_client) and held against RQ.STATS.
- The dashboard and the alerts use only metrics, labels and values of labels that there are.
- Debian's prometheus-redis-exporter shows what docs/monitoring/rq.lua gives it.
- No view takes longer than it may, by the server's own clock, with no queue, with 10,000, and with one of a million jobs.

What cannot be had on this machine is left out, said aloud, and an error with --strict.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(FOLDER, "..", "..")
sys.path.insert(0, os.path.join(FOLDER, "..", "demo"))
from demo import Connection, ServerError  # noqa: E402

PATIENCE = 60  # seconds until something is taken to hang
PAGES_MAX = 8  # no view may take longer than so many pages of a thousand jobs take
STATES = ["delayed", "ready", "active", "done", "dead", "cancelled"]


def expect(what, is_so):
    if not is_so:
        sys.exit(f"monitoring: {what}")


class Server:
    """A server with the module and nothing else."""

    def __init__(self, binary, module, folder):
        self.path = os.path.join(folder, "socket")
        for self.port in range(23_000, 23_500):
            self.process = subprocess.Popen(
                [binary, "--bind", "127.0.0.1", "--port", str(self.port), "--unixsocket", self.path, "--dir", folder,
                 "--save", "", "--logfile", "log", "--loadmodule", os.path.abspath(module)])  # fmt: skip
            end = time.monotonic() + PATIENCE
            while self.process.poll() is None and time.monotonic() < end:
                try:
                    self.connection = Connection(self.path)
                    self.connection.call("RQ.QUEUES")
                    return
                except (OSError, ServerError, EOFError):
                    time.sleep(0.01)
        sys.exit("no server came up")

    def call(self, *words):
        return self.connection.call(*words)

    def stats(self, queue):
        return self.connection.call_map("RQ.STATS", queue)


def furnish(server):
    """Queues in every condition, one with a name of any bytes."""
    call = server.call
    for queue in [b"mail", b'odd "name" \\ \xff\n', "t\u00e9l\u00e9".encode()]:
        for number in range(20):
            call("RQ.ENQUEUE", queue, "x", "TENANT", "acme", "GROUP", f"g{number % 4}", "ATTEMPTS", 1)
        call("RQ.ENQUEUE", queue, "x", "DELAY", 3_600_000)
        jobs = call("RQ.CLAIM", queue, "worker", "COUNT", 6)
        call("RQ.ACK", queue, jobs[0][0], jobs[0][1], "RESULT", "r")
        call("RQ.FAIL", queue, jobs[1][0], jobs[1][1], "ERROR", "why")
        call("RQ.CANCEL", queue, jobs[2][0])
        call("RQ.ACK", queue, jobs[2][0], jobs[2][1])
        call("RQ.QUEUE.SET", queue, "MAXLEN", 1000)
    call("RQ.PAUSE", "mail", "GROUP", "g1", "TENANT", "acme")
    call("RQ.PAUSE", "empty")


def parsed(text):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families, family, name=None, **labels):
    found = [sample.value for sample in families[family].samples
             if sample.name == (name or family) and labels.items() <= sample.labels.items()]  # fmt: skip
    expect(f"{family} {labels}: {len(found)} samples", len(found) == 1)
    return found[0]


def check_metrics(server):
    text = server.call("RQ.METRICS", "GROUPS").decode()
    families = parsed(text)
    expect("four queues", value(families, "rq_queues") == 4 and value(families, "rq_queues_omitted") == 0)
    stats = server.stats("mail")
    for state in STATES:
        expect(f"jobs {state}", value(families, "rq_jobs", queue="mail", state=state) == stats[state.encode()])
    totals = dict(zip(stats[b"totals"][::2], stats[b"totals"][1::2]))
    for event, count in totals.items():
        shown = value(families, "rq_events", "rq_events_total", queue="mail", event=event.decode())
        expect(f"event {event}", shown == count)
    expect("limit", value(families, "rq_max_waiting_jobs", queue="mail") == 1000)
    expect("waits", value(families, "rq_wait_seconds", queue="mail", quantile="1") >= 0)
    expect("paused", value(families, "rq_paused", queue="empty") == 1 and value(families, "rq_paused", queue="mail") == 0)
    expect("live", value(families, "rq_workers", queue="mail", state="live") == 1)
    held = value(families, "rq_group_held", queue="mail", group="g1", reason="paused", by="group")
    expect("held", held == 1)
    names = {sample.labels["queue"] for sample in families["rq_paused"].samples}
    expect(f"names {names}", {"mail", "empty", "t\u00e9l\u00e9"} < names and len(names) == 4)
    only = parsed(server.call("RQ.METRICS", "mail", "nothing").decode())
    expect("one queue", value(only, "rq_queues") == 1 and len(only["rq_paused"].samples) == 1)
    print("RQ.METRICS is OpenMetrics, and says what RQ.STATS says")
    return families


def check_uses(families):
    """What dashboard and alerts ask for exists."""
    samples = [sample for family in families.values() for sample in family.samples]
    names = {sample.name for sample in samples}
    with open(os.path.join(ROOT, "docs/monitoring/dashboard.json"), encoding="utf-8") as file:
        dashboard = json.load(file)
    uses = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    uses += [item["query"] for item in dashboard["templating"]["list"] if item["type"] == "query"]
    with open(os.path.join(ROOT, "docs/monitoring/alerts.yml"), encoding="utf-8") as file:
        rules = file.read()
    alerts = rules.split("- alert: ")[1:]
    expect("six alerts", len(alerts) == 6)
    uses += [rule.split("expr:")[1].split("labels:")[0] for rule in alerts]
    used = set()
    for use in uses:
        in_use = re.findall(r"\brq_[a-z_]+", use)
        expect(f"a metric in {use!r}", in_use)
        for name in in_use:
            expect(f"{name} in {use!r} exists", name in names)
        used.update(in_use)
        # Labels, and those of their values that are fixed: each of alternatives.
        for name, matchers in re.findall(r"\b(rq_[a-z_]+)\{([^}]*)\}", use):
            of_name = [sample.labels for sample in samples if sample.name == name]
            for label, operator, wanted in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', matchers):
                there = {labels.get(label) for labels in of_name}
                expect(f"{name} has the label {label}", None not in there)
                if "$" not in wanted:
                    for word in wanted.split("|"):
                        expect(f"{name}{{{label}{operator}{word}}} exists", word in there)
    with open(os.path.join(ROOT, "docs/monitoring.md"), encoding="utf-8") as file:
        documented = set(re.findall(r"`(rq_[a-z_]+)`", file.read()))
    expect(f"documented: {names - documented}", names <= documented)
    expect("alerts are documented", all(f"`{rule.split()[0]}`" in open(os.path.join(ROOT, "docs/monitoring.md")).read()
                                        for rule in alerts))  # fmt: skip
    print(f"dashboard and alerts use {len(used)} metrics, all of which there are")


def check_rules(promtool):
    if promtool is None:
        print("(no promtool on this machine: the alerts were not checked by it)")
        return
    subprocess.run([promtool, "check", "rules", os.path.join(ROOT, "docs/monitoring/alerts.yml")], check=True)


def check_exporter(server, exporter):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [exporter, "--redis.addr", f"redis://127.0.0.1:{server.port}", "--web.listen-address", f"127.0.0.1:{port}",
         "--script", os.path.join(ROOT, "docs/monitoring/rq.lua")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE).read().decode()
                break
            except OSError:
                expect("the exporter answers", process.poll() is None and time.monotonic() < end)
                time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    shown = dict(re.findall(r'^redis_script_values?\{key="([^"]*)"\} (\S+)$', text, re.M))
    stats = server.stats("mail")
    for state in STATES:
        expect(f"mail_{state} in {sorted(shown)}", float(shown.get(f"mail_{state}", -1)) == stats[state.encode()])
    totals = dict(zip(stats[b"totals"][::2], stats[b"totals"][1::2]))
    expect("totals", float(shown["mail_total_enqueued"]) == totals[b"enqueued"])
    expect("INFO rq", float(shown["info_queues"]) == 4)
    paused = [name for name in shown if name.endswith("_paused")]
    expect(f"four queues: {paused}", len(paused) == 4)
    print(f"prometheus-redis-exporter shows {len(shown)} figures of rq.lua")


def slowest(server, views, rounds=5):
    """The time that each view takes at least, in ms, by SLOWLOG: the server's own clock, without what delays clients."""
    call = server.call
    call("CONFIG", "SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 10_000)
    least = {}
    for _ in range(rounds):
        for view in views:
            call("SLOWLOG", "RESET")
            call(*view)
            entries = call("SLOWLOG", "GET", 10)
            took = next(entry[2] for entry in entries if entry[3][0].upper() == view[0].encode())
            least[" ".join(view)] = min(took / 1000, least.get(" ".join(view), 1e9))
    call("CONFIG", "SET", "slowlog-log-slower-than", -1)
    return least


def check_times(server, what, views, unit):
    least = slowest(server, views)
    for view, took in least.items():
        print(f"  {what:>24}  {took:8.3f} ms  {view}")
        expect(f"{view} with {what}: {took} ms, beside {unit} ms for a page", took <= PAGES_MAX * unit)


def check_views(server):
    views = [["RQ.QUEUES", "COUNT", "1000"], ["RQ.METRICS"], ["RQ.METRICS", "GROUPS"], ["INFO", "rq"]]
    of_queue = [["RQ.STATS", "q"], ["RQ.STATS", "q", "JSON"], ["RQ.WORKERS", "q"], ["RQ.GROUP.LIST", "q", "COUNT", "1000"],
                ["RQ.TENANT.LIST", "q"], ["RQ.METRICS", "q", "GROUPS"]]  # fmt: skip
    of_queue += [["RQ.LIST", "q", state, "COUNT", "1000"] for state in STATES]
    call = server.call
    call("FLUSHALL", "SYNC")
    call("RQ.MENQUEUE", "page", "JOBS", 1000, *[b"x"] * 1000)
    unit = slowest(server, [["RQ.LIST", "page", "ready", "COUNT", "1000"]]).popitem()[1]
    call("FLUSHALL", "SYNC")
    check_times(server, "no queue", views, unit)
    call("RQ.ENQUEUE", "q", "x")
    check_times(server, "one queue", views + of_queue, unit)
    for number in range(10_000):
        server.connection.send("RQ.ENQUEUE", f"queue-{number}", "x")
        if number % 100 == 99:
            for _ in range(100):
                server.connection.read()
    check_times(server, "10,000 queues", views, unit)
    call("FLUSHALL", "SYNC")
    payload = b"x" * 10
    for number in range(1_000):
        # In a thousand groups, half of them delayed.
        options = ["DELAY", 3_600_000] if number % 2 else []
        call("RQ.MENQUEUE", "q", *options, "GROUP", f"g{number}", "JOBS", 1000, *[payload] * 1000)
    jobs = call("RQ.CLAIM", "q", "w", "COUNT", 1000)
    for job, token, *_ in jobs[:500]:
        call("RQ.ACK", "q", job, token, "RESULT", "r")
    expect("a million jobs", sum(server.stats("q")[state.encode()] for state in STATES) == 1_000_000)
    check_times(server, "a queue of 1,000,000", views + of_queue, unit)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--module", required=True)
    arguments.add_argument("--server", default=shutil.which("redis-server"))
    arguments.add_argument("--strict", action="store_true")
    arguments.add_argument("--views", action="store_true", help="only measure the views")
    chosen = arguments.parse_args()
    left_out = []
    sys.path.insert(0, os.path.join(ROOT, "build/monitoring/python"))
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        left_out.append("prometheus_client, the parser of OpenMetrics")
    exporter = shutil.which("prometheus-redis-exporter") or shutil.which(
        os.path.abspath(os.path.join(ROOT, "build/monitoring/exporter/usr/bin/prometheus-redis-exporter")))
    if exporter is None:
        left_out.append("prometheus-redis-exporter")
    with tempfile.TemporaryDirectory(prefix="rq-monitoring-") as folder:
        server = Server(chosen.server, chosen.module, folder)
        try:
            if not chosen.views:
                furnish(server)
                if "prometheus_client" in sys.modules:
                    check_uses(check_metrics(server))
                check_rules(shutil.which("promtool"))
                if exporter is not None:
                    check_exporter(server, exporter)
            check_views(server)
        finally:
            server.process.kill()
            server.process.wait()
    for what in left_out:
        print(f"*** NOT CHECKED, as this machine has none: {what}", file=sys.stderr)
    if left_out and chosen.strict:
        sys.exit(1)
    print("monitoring: all that could be checked is as it should be")


if __name__ == "__main__":
    main()
