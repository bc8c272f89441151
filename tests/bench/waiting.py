"""One enqueue at a time while workers wait: each wakes one of them, who asks again."""

import selectors
import socket
import time

import hiredis

from rig import Client, Server, Table, in_turns, median, say, targets

# name: what a worker sends to wait, and what a producer sends
WAITS = {
    "RQ.ENQUEUE, RQ.CLAIM": (("RQ.CLAIM", "queue", "worker", "BLOCK", 0), ("RQ.ENQUEUE", "queue", "x")),
    "RPUSH, BLPOP": (("BLPOP", "queue", 0), ("RPUSH", "queue", "x")),
}


class Crowd:
    """Workers that wait, all of them. How they wait is told by a command, or by what makes one for each."""

    def __init__(self, server, wait, workers):
        self.server = server
        self.sockets = selectors.DefaultSelector()
        for _ in range(workers):
            connection = socket.create_connection(("127.0.0.1", server.port))
            self.wait = hiredis.pack_command(wait() if callable(wait) else wait)
            connection.sendall(self.wait)
            self.sockets.register(connection, selectors.EVENT_READ)
        self.until_blocked(workers)

    def until_blocked(self, workers):
        while int(self.server.client.info("clients")["blocked_clients"]) != workers:
            time.sleep(0.01)

    def take_one(self):
        """Waits until one was served, or several, and lets them ask again."""
        for key, _ in self.sockets.select(10):
            key.fileobj.recv(65_536)
            key.fileobj.sendall(self.wait)

    def leave(self):
        for key in list(self.sockets.get_map().values()):
            key.fileobj.close()
        self.sockets.close()
        self.until_blocked(0)


def once(server, name, workers, jobs):
    """Microseconds per job: of processor time of the server, and of its event loop for the commands."""
    wait, enqueue = WAITS[name]
    server.client.call("FLUSHALL")
    crowd = Crowd(server, wait, workers)
    producer = Client(server.port)
    server.client.call("CONFIG", "RESETSTAT")
    before = server.cpu()
    for _ in range(jobs):
        producer.call(*enqueue)
        crowd.take_one()
    used = server.cpu() - before
    in_commands, _ = server.event_loop_us({enqueue[0].lower(), wait[0].lower()})
    producer.close()
    crowd.leave()
    return used / jobs * 1e6, in_commands / jobs


def measure(options, _peers):
    jobs, rounds = (500, 2) if options.quick else (2_000, 5)
    rounds = options.rounds or rounds
    crowds = (1, 1_000, 10_000)
    found = {(name, workers): [] for name in WAITS for workers in crowds}
    with Server() as server:
        for round, name in in_turns(WAITS, rounds):
            for workers in crowds:
                say(f"waiting workers, round {round + 1} of {rounds}: {name}, {workers:,}")
                found[name, workers].append(once(server, name, workers, jobs))
    rows, growth = [], {}
    for name in WAITS:
        for what, which in (("processor time of the server", 0), ("event loop, in the commands", 1)):
            figures = [median(each[which] for each in found[name, workers]) for workers in crowds]
            growth[name, which] = figures[-1] / figures[0]
            rows.append([name, what, *(f"{figure:.1f}" for figure in figures), f"{growth[name, which]:.2f}"])
    ours, servers_own = WAITS
    for which, what in enumerate(("processor time", "event loop")):
        targets.check(f"flat, 10,000 workers wait for the same queue, {what}, beside how BLPOP grows",
                      growth[ours, which] / growth[servers_own, which], most=1.15)
    yield Table("One enqueue at a time while so many workers wait for the queue",
                ["µs per job", "", *(f"{workers:,}" for workers in crowds), "last to first"], rows,
                "A connection that was not woken lately is cold for kernel and server: beside ours, how that shows in the server's own.")
