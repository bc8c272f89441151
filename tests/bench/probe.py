"""PING from a second connection about every millisecond: what everybody else on the server gets to feel."""

import array
import gc
import socket
import time

from rig import PROCESSES, as_child

INTERVAL = 1_000_000  # ns


def ping(port, control):
    """Until told to stop; sends back the instants of the pings and their latencies, ns."""
    as_child()
    gc.disable()
    at, latency = array.array("q"), array.array("q")
    server = socket.create_connection(("127.0.0.1", port))
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    control.send("ready")
    clock, due = time.monotonic_ns, time.monotonic_ns()
    while not control.poll():
        start = clock()
        server.sendall(b"PING\r\n")
        server.recv(64)
        end = clock()
        at.append(start)
        latency.append(end - start)
        due = max(due + INTERVAL, end)
        time.sleep(max(due - clock(), 0) / 1e9)
    control.send((at, latency))


class Probe:
    def __init__(self, port):
        self.control, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=ping, args=(port, theirs))
        self.process.start()
        self.control.recv()

    def stop(self):
        self.control.send("stop")
        self.at, self.latency = self.control.recv()
        self.process.join()

    def between(self, begin, end):
        """The latencies, ns, of that time. A ping that took long stands for those that were not sent meanwhile."""
        found = []
        for at, latency in zip(self.at, self.latency):
            if at + latency >= begin and at <= end:
                found += range(latency, 0, -INTERVAL)
        return found


def percentiles(found):
    """p50, p99, p99.9 and the largest, in ms."""
    found = sorted(found)
    return [found[min(int(len(found) * part), len(found) - 1)] / 1e6 for part in (0.5, 0.99, 0.999, 1)]
