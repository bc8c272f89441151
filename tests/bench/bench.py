"""Measures queues beside each other on one server, in turns, and prints medians and ratios.

Machines are noisy: only figures of one run may be compared, and only ratios of medians mean much.
"""

import argparse
import selectors
import socket
import statistics
import subprocess
import tempfile
import time

import redis

PAYLOAD = b"x" * 100
BATCH = 1_000


class Server:
    def __init__(self, binary, module):
        self.dir = tempfile.TemporaryDirectory()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [binary, "--port", str(self.port), "--dir", self.dir.name, "--save", "", "--loadmodule", module,
             "--maxclients", "15000"],
            stdout=subprocess.DEVNULL,
        )
        self.client = redis.Redis(port=self.port)
        for _ in range(200):
            try:
                self.client.ping()
                return
            except redis.ConnectionError:
                time.sleep(0.05)
        raise SystemExit("the server did not start")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def pipelined(client, commands):
    pipe = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command)
    return pipe.execute()


def batches(jobs):
    return range(0, jobs, BATCH)


def lists(client, jobs):
    for start in batches(jobs):
        pipelined(client, [("LPUSH", "list", PAYLOAD + b"%d" % (start + n)) for n in range(BATCH)])
    yield
    for _ in batches(jobs):
        taken = pipelined(client, [("LMOVE", "list", "taken", "RIGHT", "LEFT")] * BATCH)
        pipelined(client, [("LREM", "taken", -1, job) for job in taken])


def streams(client, jobs):
    client.xgroup_create("stream", "group", mkstream=True)
    for _ in batches(jobs):
        pipelined(client, [("XADD", "stream", "*", "p", PAYLOAD)] * BATCH)
    yield
    for _ in batches(jobs):
        read = ("XREADGROUP", "GROUP", "group", "worker", "COUNT", 1, "STREAMS", "stream", ">")
        ids = [reply[0][1][0][0] for reply in pipelined(client, [read] * BATCH)]
        pipelined(client, [command for id in ids for command in (("XACK", "stream", "group", id), ("XDEL", "stream", id))])


def rq(client, jobs):
    for _ in batches(jobs):
        pipelined(client, [("RQ.ENQUEUE", "queue", PAYLOAD)] * BATCH)
    yield
    for _ in batches(jobs):
        claimed = [reply[0] for reply in pipelined(client, [("RQ.CLAIM", "queue", "worker")] * BATCH)]
        pipelined(client, [("RQ.ACK", "queue", job[0], job[1]) for job in claimed])


LIFE_CYCLES = {
    "lists": (lists, ["lpush", "lmove", "lrem"], "LPUSH + LMOVE + LREM (no lease, no retry)"),
    "streams": (streams, ["xadd", "xreadgroup", "xack", "xdel"], "XADD + XREADGROUP + XACK + XDEL"),
    "rq": (rq, ["rq.enqueue", "rq.claim", "rq.ack"], "RQ.ENQUEUE + RQ.CLAIM + RQ.ACK"),
}


def life_cycle(client, name, jobs):
    """Microseconds of event-loop time and bytes while ready, per job."""
    run, commands, _ = LIFE_CYCLES[name]
    client.flushall()
    client.config_resetstat()
    before = client.info("memory")["used_memory"]
    steps = run(client, jobs)
    next(steps)
    size = (client.info("memory")["used_memory"] - before) / jobs
    for _ in steps:
        pass
    stats = {key.lower(): value for key, value in client.info("commandstats").items()}
    return sum(stats[f"cmdstat_{command}"]["usec"] for command in commands) / jobs, size


def encoded(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


WAITS = {
    "BLPOP": (encoded("BLPOP", "queue", 0), ("RPUSH", "queue", "x")),
    "RQ.CLAIM": (encoded("RQ.CLAIM", "queue", "worker", "BLOCK", 0), ("RQ.ENQUEUE", "queue", "x")),
}


def waiting(client, port, name, workers, jobs):
    """Microseconds of server CPU per job, enqueued one at a time while so many workers wait."""
    wait, enqueue = WAITS[name]
    client.flushall()
    sockets = selectors.DefaultSelector()
    for _ in range(workers):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(wait)
        sockets.register(connection, selectors.EVENT_READ)
    while client.info("clients")["blocked_clients"] < workers:
        time.sleep(0.01)

    def cpu():
        info = client.info("cpu")
        return info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]

    before = cpu()
    for _ in range(jobs):
        client.execute_command(*enqueue)
        for key, _ in sockets.select(1):
            key.fileobj.recv(65_536)
            key.fileobj.sendall(wait)
    used = cpu() - before
    for key in list(sockets.get_map().values()):
        key.fileobj.close()
    sockets.close()
    while client.info("clients")["blocked_clients"] > 0:
        time.sleep(0.01)
    return used / jobs * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--module", required=True)
    parser.add_argument("--server", default="redis-server")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    server = Server(options.server, options.module)
    try:
        print(f"{server.client.info('server')['redis_version']}, {options.jobs} jobs of {len(PAYLOAD)} bytes, "
              f"medians of {options.rounds} rounds\n")
        results = {name: [] for name in LIFE_CYCLES}
        for round in range(options.rounds):
            # Another one begins each time: what the one before left behind in the heap is not always the same one's luck.
            names = list(LIFE_CYCLES)
            for name in names[round % len(names):] + names[:round % len(names)]:
                print(f"\rround {round + 1} of {options.rounds}: {name:8}", end="", flush=True)
                results[name].append(life_cycle(server.client, name, options.jobs))
        print("\r" + " " * 40 + "\r", end="")
        base = statistics.median(time for time, _ in results["lists"])
        print("| whole life cycle, per job | event-loop µs | beside lists | bytes while ready |\n|---|---|---|---|")
        for name, (_, _, label) in LIFE_CYCLES.items():
            used = statistics.median(time for time, _ in results[name])
            size = statistics.median(size for _, size in results[name])
            print(f"| {label} | {used:.2f} | {used / base:.2f} | {size:.0f} |")
        print("\n| one enqueue while workers wait, server CPU µs | 1 | 2,000 | ratio |\n|---|---|---|---|")
        for name in WAITS:
            figures = {workers: [] for workers in (1, 2_000)}
            for _ in range(options.rounds):
                for workers in figures:
                    figures[workers].append(waiting(server.client, server.port, name, workers, 1_000))
            one, many = (statistics.median(values) for values in figures.values())
            print(f"| {name} | {one:.1f} | {many:.1f} | {many / one:.2f} |")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
