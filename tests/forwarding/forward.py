#!/usr/bin/env python3
"""Forwards payloads over HTTP to the endpoints of several tenants, and checks that none waits for another's trouble.

Run it by `make forward`. A small HTTP server on loopback plays 5 tenants with 10 endpoints each, of different tempers:
fast, slow but fine, down for a while (refusing connections, or answering 503), always 500, 429 with Retry-After, 400 to
some payloads. Worker processes claim payloads from one queue and post them. Each endpoint is a group, its owner the
tenant; what a worker makes of an answer is in `Worker.forward`, and it is all that it has to know:

    2xx                           RQ.ACK                   the payload is delivered
    429, Retry-After: s           RQ.FAIL … THROTTLED ms   the endpoint rests so long; no attempt is used
    503, no connection            RQ.FAIL … UNAVAILABLE    the endpoint backs off, with a probe at a time; no attempt is used
    400                           RQ.FAIL … DEAD           this payload will never be accepted
    other                         RQ.FAIL                  an attempt is used; again after the back-off of the payload

How many payloads at once, and of whom? A worker is occupied for as long as an endpoint takes to answer, so ten slow
endpoints of one tenant can occupy any number of workers, each of them well within a limit per endpoint. What protects the
others is a limit per *tenant*. Here 4 workers hold 2 payloads each, and each of the 5 tenants, whoever it is (nobody knows
beforehand who will be slow), may have 2 of these 8 places. That they could want 10 places together is on purpose: nothing
is reserved, so hardly any place idles, and yet no tenant can take more than a quarter. GROUP-CONCURRENCY keeps an
endpoint from being flooded and bounds what is lost when it goes down; one endpoint asks for one request at a time.
`--without-limits` leaves out the limits of the tenants; then the comparison at the end fails.

Then the two fast tenants do the same alone, and their longest waits are compared. The checks are at the end; each one that
fails is named, and the exit code is 1.
"""

import argparse
import collections
import http.client
import http.server
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "demo"))
from demo import Connection, ServerError  # noqa: E402

WORKERS = 4
PLACES = 2  # payloads that a worker process holds at once, each in a thread
TENANT_CONCURRENCY = 2
GROUP_CONCURRENCY = 2
ONE_AT_A_TIME = ("slow", "e0")
GROUP_BACKOFF = (200, 4000)  # ms
ATTEMPTS = 3
BACKOFF = (200, 1000)  # ms, of a payload that was refused
LEASE = 10_000  # ms
TIMEOUT = 4  # seconds for an answer: less than the lease, so that no heartbeat (RQ.EXTEND) is needed

FAST = ("swift", "brisk")
FAST_TIME, SLOW_TIME = 0.025, 0.3  # seconds to answer
WAVES, WAVE_EVERY = 14, 0.8  # seconds
# Of the refusing endpoints, which are down from the start; of those that answer 503, which are up at first.
REFUSING, UNAVAILABLE = (0.0, 5.0), (1.5, 6.0)
BURST, RETRY_AFTER = 4, 1  # requests that a throttling endpoint takes; then it wants a rest of so many seconds
PAUSE, LOOK, RESUME = 2.0, 2.45, 3.8  # seconds after the start; LOOK: just after a wave
PAUSED_ENDPOINT, PAUSED_TENANT = ("outage", "e9"), "slow"

# The fast tenants may wait so much longer beside the others than alone. The allowance in ms is for the scheduler: on a
# machine of two cores this makes requests, answers them, and serves the queue, maybe beside other work.
FACTOR, ALLOWANCE = 1.5, 150


class Endpoint:
    """One endpoint: how it behaves, and what it saw."""

    def __init__(self, tenant, name, temper):
        self.tenant, self.name, self.temper = tenant, name, temper
        self.lock = threading.Lock()
        self.url = None
        self.down = {"refusing": REFUSING, "503": UNAVAILABLE}.get(temper)
        self.start = math.inf  # of the run
        self.active = self.most_active = 0
        self.taken = 0  # since the last rest
        self.rests_until = 0.0
        self.seen = []  # (token, payload, arrived, status)
        self.sent = {}  # payload: enqueued
        self.ids = []
        # In the end, from the workers and the queue.
        self.attempts = []
        self.jobs = []
        self.wasted = 0
        self.longest = 0.0

    def is_down(self, now):
        return self.down is not None and self.down[0] <= now - self.start < self.down[1]

    def answer(self, token, body):
        """Plays the endpoint: status and headers, after as long as it takes."""
        arrived = time.monotonic()
        payload = json.loads(body)
        with self.lock:
            self.active += 1
            self.most_active = max(self.most_active, self.active)
            status, headers = self.decide(arrived, payload)
        if status != 503 and status != 429:
            time.sleep(SLOW_TIME if self.temper == "slow" else FAST_TIME)
        with self.lock:
            self.active -= 1  # before the answer is on its way: what it sets free may be here before it is sent
            self.seen.append((token, payload["number"], arrived, status))
        return status, headers

    def decide(self, now, payload):
        if self.is_down(now):
            return 503, {}
        if self.temper == "500":
            return 500, {}
        if self.temper == "400 to some" and payload["broken"]:
            return 400, {}
        if self.temper == "429":
            if now < self.rests_until:
                return 429, {"Retry-After": math.ceil(self.rests_until - now)}
            if self.taken == BURST:
                self.taken = 0
                self.rests_until = now + RETRY_AFTER
                return 429, {"Retry-After": RETRY_AFTER}
            self.taken += 1
        return 200, {}


def tempers(tenant):
    return {
        "swift": ["fast"] * 10,
        "brisk": ["fast"] * 10,
        "slow": ["slow"] * 10,
        "outage": ["refusing"] * 3 + ["503"] * 3 + ["fast"] * 4,
        "picky": ["500"] * 3 + ["429"] * 3 + ["400 to some"] * 4,
    }[tenant]


def payloads_at_start(temper):
    return {"slow": 6, "refusing": 12, "503": 6, "500": 6, "429": 12}.get(temper, 0)


def payloads_per_wave(endpoint):
    if endpoint.tenant in FAST:
        return 3
    return {"refusing": 1, "503": 2, "fast": 1, "400 to some": 1}.get(endpoint.temper, 0)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer in one packet

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        endpoint = self.server.endpoints[self.path]
        status, headers = endpoint.answer(self.headers["X-Delivery"], body)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args):
        pass


class Listener(http.server.ThreadingHTTPServer):
    """An HTTP server for some endpoints. Until it is opened its port is taken, but connections are refused."""

    request_queue_size = 64
    allow_reuse_address = False  # or the same port could be given to two that do not listen yet

    def __init__(self, endpoints):
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.server_bind()
        self.endpoints = {}
        self.thread = None
        for endpoint in endpoints:
            path = f"/{endpoint.tenant}/{endpoint.name}"
            self.endpoints[path] = endpoint
            endpoint.url = f"http://127.0.0.1:{self.server_port}{path}"

    def open(self):
        self.server_activate()
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        if self.thread:
            self.shutdown()
        self.server_close()

    def handle_error(self, _request, _address):
        pass  # a worker was ended in mid-request


class Worker:
    """One place of a worker process: claims a payload, posts it, and says how it went."""

    def __init__(self, path, queue, name, log):
        self.server = Connection(path)
        self.queue, self.name, self.log = queue, name, log
        self.connections = {}

    def run(self, parent):
        try:
            while True:
                if os.getppid() != parent:  # killed before it could clean up
                    self.server.call("SHUTDOWN", "NOSAVE")
                for job, token, payload, _delivery in self.server.call("RQ.CLAIM", self.queue, self.name, "BLOCK", 5000, "LEASE", LEASE) or []:
                    self.measured(job, token, payload)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            os._exit(0)  # the server is gone, also for the other thread
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # rather none than a worker with a place that nobody fills

    def measured(self, job, token, payload):
        """Notes what it did, for the table; no worker needs that."""
        claimed = time.monotonic()
        url = json.loads(payload)["url"]
        try:
            status = self.forward(job, token, payload, url)
        except ServerError as error:
            status = str(error)
        row = [urllib.parse.urlsplit(url).path, token.decode(), status, claimed, time.monotonic(), time.time() * 1000]
        self.log.write(json.dumps(row) + "\n")

    def forward(self, job, token, payload, url):
        status, retry_after = self.post(url, payload, job, token)
        if status is None or status == 503:
            self.fail(job, token, f"unavailable: {status}", "UNAVAILABLE")
        elif status == 429:
            self.fail(job, token, "throttled", "THROTTLED", 1000 * int(retry_after or 1))
        elif status == 400:
            self.fail(job, token, "bad request", "DEAD")
        elif 200 <= status < 300:
            self.server.call("RQ.ACK", self.queue, job, token)
        else:
            self.fail(job, token, f"status {status}")
        return status

    def fail(self, job, token, text, *how):
        self.server.call("RQ.FAIL", self.queue, job, token, "ERROR", text, *how)

    def post(self, url, payload, job, token):
        """Status and Retry-After; None if nobody answers."""
        parts = urllib.parse.urlsplit(url)
        connection = self.connections.get(parts.netloc) or http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT)
        headers = {"Content-Type": "application/json", "Idempotency-Key": job.decode(), "X-Delivery": token.decode()}
        try:
            connection.request("POST", parts.path, payload, headers)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            self.connections.pop(parts.netloc, None)
            return None, None
        self.connections[parts.netloc] = connection
        return response.status, response.getheader("Retry-After")


def worker(path, queue, name, log):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    parent = os.getppid()
    with open(log, "w", buffering=1, encoding="utf-8") as file:
        threads = [threading.Thread(target=Worker(path, queue, f"{name}.{place}", file).run, args=(parent,)) for place in range(PLACES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


Attempt = collections.namedtuple("Attempt", "token status claimed ended reported")


def granted(attempt):
    """When the server handed it out, Unix ms: a token begins with that instant."""
    return int(attempt.token.split("-")[0])


class Run:
    """One queue, served by WORKERS workers until it is empty."""

    def __init__(self, forwarding, queue, tenants, limits):
        self.forwarding, self.queue = forwarding, queue
        self.server = forwarding.server
        self.endpoints = [Endpoint(tenant, f"e{number}", temper) for tenant in tenants for number, temper in enumerate(tempers(tenant))]
        self.by_name = {(endpoint.tenant, endpoint.name): endpoint for endpoint in self.endpoints}
        self.numbers = 0
        self.closed = [Listener([endpoint]) for endpoint in self.endpoints if endpoint.temper == "refusing"]
        self.listeners = self.closed + [Listener([endpoint for endpoint in self.endpoints if endpoint.temper != "refusing"])]
        self.listeners[-1].open()
        self.pauses = {}  # (tenant, endpoint or None): (from, to) in Unix ms, for sure
        self.reasons = []
        self.seconds = 0.0

        settings = ["LEASE", LEASE, "ATTEMPTS", ATTEMPTS, "BACKOFF", *BACKOFF]
        groups = ["GROUP-CONCURRENCY", GROUP_CONCURRENCY, "GROUP-BACKOFF", *GROUP_BACKOFF]
        # What is done stays, so that each payload can be looked at in the end.
        self.server.call("RQ.QUEUE.SET", queue, *settings, *groups, "TTL", 600_000)
        if limits:
            for tenant in tenants:
                self.server.call("RQ.TENANT.SET", queue, tenant, "CONCURRENCY", TENANT_CONCURRENCY)
        if ONE_AT_A_TIME in self.by_name:
            tenant, name = ONE_AT_A_TIME
            self.server.call("RQ.GROUP.SET", queue, name, "TENANT", tenant, "CONCURRENCY", 1)

    def enqueue(self, how_many):
        """`how_many` payloads for each endpoint, all calls in one go."""
        called = []
        for endpoint in self.endpoints:
            count = how_many(endpoint)
            if not count:
                continue
            payloads = []
            now = time.monotonic()
            for _ in range(count):
                self.numbers += 1
                endpoint.sent[self.numbers] = now
                payloads.append(json.dumps({"url": endpoint.url, "number": self.numbers, "broken": len(endpoint.sent) % 3 == 0}))
            self.server.send("RQ.MENQUEUE", self.queue, "TENANT", endpoint.tenant, "GROUP", endpoint.name, "JOBS", count, *payloads)
            called.append(endpoint)
        for endpoint in called:
            ids = self.server.read()
            if isinstance(ids, ServerError):
                raise ids
            endpoint.ids += ids

    def pause(self):
        tenant, name = PAUSED_ENDPOINT
        self.server.call("RQ.PAUSE", self.queue, "TENANT", tenant, "GROUP", name)
        self.server.call("RQ.PAUSE", self.queue, "TENANT", PAUSED_TENANT)
        now = time.time() * 1000
        self.pauses = {PAUSED_ENDPOINT: [now, now], (PAUSED_TENANT, None): [now, now]}

    def resume(self):
        for pause in self.pauses.values():
            pause[1] = time.time() * 1000
        tenant, name = PAUSED_ENDPOINT
        self.server.call("RQ.RESUME", self.queue, "TENANT", tenant, "GROUP", name)
        self.server.call("RQ.RESUME", self.queue, "TENANT", PAUSED_TENANT)

    def look(self):
        cursor = b"0"
        while True:
            cursor, groups = self.server.call("RQ.GROUP.LIST", self.queue, "CURSOR", cursor)
            self.reasons += [dict(zip(group[::2], group[1::2])) for group in groups]
            if cursor == b"0":
                break
        self.reasons = [group for group in self.reasons if group[b"group"] is not None]

    def run(self):
        workers = self.forwarding.start_workers(self.queue)
        while self.server.call_map("RQ.STATS", self.queue)[b"waiting-workers"] < WORKERS * PLACES:
            time.sleep(0.01)
        start = time.monotonic()
        for endpoint in self.endpoints:
            endpoint.start = start
        events = [(0.0, lambda: self.enqueue(lambda endpoint: payloads_at_start(endpoint.temper)))]
        events += [(wave * WAVE_EVERY, lambda: self.enqueue(payloads_per_wave)) for wave in range(WAVES)]
        events += [(REFUSING[1], listener.open) for listener in self.closed]
        if PAUSED_ENDPOINT in self.by_name:
            events += [(PAUSE, self.pause), (LOOK, self.look), (RESUME, self.resume)]
        for at, event in sorted(events, key=lambda event: event[0]):
            time.sleep(max(0.0, start + at - time.monotonic()))
            event()
            self.all_work(workers)
        while True:
            counts = self.server.call_map("RQ.STATS", self.queue)
            if counts[b"done"] + counts[b"dead"] == self.numbers or time.monotonic() - start > 60:
                break
            self.all_work(workers)
            time.sleep(0.05)
        self.seconds = time.monotonic() - start
        for process in workers:
            process.kill()
            process.wait()
        for listener in self.listeners:
            listener.close()
        self.collect()

    def all_work(self, workers):
        if any(process.poll() is not None for process in workers):
            raise SystemExit("a worker ended by itself")

    def collect(self):
        """What the workers and the queue know of each endpoint."""
        attempts = collections.defaultdict(list)
        for log in self.forwarding.logs(self.queue):
            with open(log, encoding="utf-8") as file:
                for line in file:
                    path, *row = json.loads(line)
                    attempts[path].append(Attempt(*row))
        for endpoint in self.endpoints:
            endpoint.attempts = sorted(attempts[f"/{endpoint.tenant}/{endpoint.name}"], key=granted)
            for job in endpoint.ids:
                self.server.send("RQ.JOB", self.queue, job)
            replies = [self.server.read() for _ in endpoint.ids]
            endpoint.jobs = [dict(zip(reply[::2], reply[1::2])) for reply in replies if reply]
            # Nobody answers (None), or 503.
            endpoint.wasted = sum(1 for attempt in endpoint.attempts if attempt.status in (None, 503))
            first = {}  # payload: when it came to an endpoint that took or rejected it
            for _token, number, arrived, status in sorted(endpoint.seen, key=lambda request: request[2]):
                if status not in (429, 503):
                    first.setdefault(number, arrived)
            endpoint.longest = max((first.get(number, math.inf) - sent for number, sent in endpoint.sent.items()), default=0)

    def longest(self):
        """The longest wait of the fast tenants, ms."""
        return max(1000 * endpoint.longest for endpoint in self.endpoints if endpoint.tenant in FAST)

    def print_reasons(self):
        print(f"\n{LOOK} s after the start, RQ.GROUP.LIST says why endpoints are not served (held, held by):")
        held = collections.defaultdict(list)
        for group in self.reasons:
            word = ", ".join(part.decode() for part in (group[b"held"], group[b"held-by"]) if part) or "served"
            held[word].append(f"{group[b'tenant'].decode()}/{group[b'group'].decode()}")
        for word, names in sorted(held.items(), key=lambda item: -len(item[1])):
            print(f"  {word:20} {len(names):2}  {' '.join(names[:6])}{' …' if len(names) > 6 else ''}")

    def print_table(self):
        print(f"\n  {'endpoint':10} {'temper':12} {'sent':>5} {'attempts':>8} {'wasted':>6} {'delivered':>9} {'dead':>5} {'longest wait':>12}")
        for endpoint in self.endpoints:
            states = collections.Counter(job[b"state"] for job in endpoint.jobs)
            remark = ""
            for (tenant, name), (start, end) in self.pauses.items():
                if tenant == endpoint.tenant and name in (None, endpoint.name):
                    remark = f"  {'tenant ' if name is None else ''}paused for {(end - start) / 1000:.1f} s"
            if endpoint.down:
                remark += f"  down for {endpoint.down[1] - endpoint.down[0]:.1f} s"
            name = f"{endpoint.tenant}/{endpoint.name}"
            print(
                f"  {name:10} {endpoint.temper:12} {len(endpoint.sent):5} {len(endpoint.attempts):8} {endpoint.wasted:6}"
                f" {states[b'done']:9} {states[b'dead']:5} {1000 * endpoint.longest:9,.0f} ms{remark}"
            )
        print(f"\n  {'tenant':10} {'sent':>5} {'attempts':>8} {'longest wait':>12} {'worker time':>12}")
        whole = self.seconds * WORKERS * PLACES
        rest = whole
        for tenant in dict.fromkeys(endpoint.tenant for endpoint in self.endpoints):
            mine = [endpoint for endpoint in self.endpoints if endpoint.tenant == tenant]
            attempts = [attempt for endpoint in mine for attempt in endpoint.attempts]
            busy = sum(attempt.ended - attempt.claimed for attempt in attempts)
            rest -= busy
            longest = 1000 * max(endpoint.longest for endpoint in mine)
            sent = sum(len(endpoint.sent) for endpoint in mine)
            print(f"  {tenant:10} {sent:5} {len(attempts):8} {longest:9,.0f} ms {busy / whole:12.1%}")
        print(f"  {'(waiting)':10} {'':5} {'':8} {'':12} {rest / whole:12.1%}")


def most_probes(down):
    """How many times at most an endpoint is asked in so many seconds, if each wait is a quarter shorter than it could be:
    once by each worker place that its concurrency allows, then by one probe at a time."""
    at, level, count = 0.0, 0, GROUP_CONCURRENCY
    while True:
        at += 0.75 * min(GROUP_BACKOFF[0] * 2**level, GROUP_BACKOFF[1]) / 1000
        if at > down:
            return count
        level, count = level + 1, count + 1


def say(text, wrong):
    """Prints what is claimed, and whether it is true. Gives what is wrong with it."""
    print(f"  {'ok   ' if not wrong else 'WRONG'} {text}")
    return [f"{text}: {name}" for name in wrong]


def compare(run, alone):
    together, single = run.longest(), alone.longest()
    limit = FACTOR * single + ALLOWANCE
    text = f"the fast tenants waited {together:,.0f} ms at most, alone {single:,.0f} ms; allowed {FACTOR} × that and {ALLOWANCE} ms: {limit:,.0f} ms"
    return say(text, ["too long"] if together > limit else [])


def check(run, alone):
    """What is not as it should be, the waits apart."""
    problems = []

    def claim(text, wrong):
        problems.extend(say(text, wrong))

    def named(endpoint, text):
        return f"{endpoint.tenant}/{endpoint.name} {text}"

    endpoints = run.endpoints + alone.endpoints
    claim(
        "every payload has ended",
        [named(e, f"{job[b'id'].decode()} is {job[b'state'].decode()}") for e in endpoints for job in e.jobs if job[b"state"] not in (b"done", b"dead")]
        + [named(e, f"{len(e.sent) - len(e.jobs)} jobs are gone") for e in endpoints if len(e.sent) != len(e.jobs)],
    )
    claim(
        "the queue refused nothing that a worker said",
        [named(e, attempt.status) for e in endpoints for attempt in e.attempts if isinstance(attempt.status, str)],
    )
    claim(
        "the endpoints, the workers and the queue counted the same requests",
        [
            named(e, f"{len(e.seen)}, {len(e.attempts)}, {deliveries}")
            for e in endpoints
            for deliveries in [sum(job[b"deliveries"] for job in e.jobs)]
            if not {token for token, *_ in e.seen} <= {a.token for a in e.attempts}
            or len(e.seen) != sum(1 for a in e.attempts if a.status is not None)
            or len(e.attempts) != deliveries
        ],
    )

    def wrongly_delivered(endpoint):
        taken = collections.Counter(number for _token, number, _arrived, status in endpoint.seen if status == 200)
        rejected = {number for _token, number, _arrived, status in endpoint.seen if status == 400}
        return sum(1 for number in endpoint.sent if taken[number] != (number not in rejected))

    healthy = [endpoint for endpoint in endpoints if endpoint.temper != "500"]
    claim(
        "each payload was taken exactly once, unless its endpoint rejects it",
        [named(e, f"{wrongly_delivered(e)} not so") for e in healthy if wrongly_delivered(e)],
    )
    down = [endpoint for endpoint in run.endpoints if endpoint.down]
    bounds = {endpoint: most_probes(endpoint.down[1] - endpoint.down[0]) for endpoint in down}
    claim(
        f"an endpoint that is down is asked as often as its back-off allows (at most {max(bounds.values())} times)",
        [named(e, f"{e.wasted} times, not 2 to {bounds[e]}") for e in down if not 2 <= e.wasted <= bounds[e]],
    )
    claim(
        "that used up no attempt of any payload",
        [named(e, job[b"id"].decode()) for e in down for job in e.jobs if job[b"attempts"] or job[b"state"] != b"done"],
    )
    claim(
        f"what always fails is dead after {ATTEMPTS} attempts each",
        [
            named(e, f"{job[b'reason']} after {job[b'deliveries']}")
            for e in run.endpoints
            if e.temper == "500"
            for job in e.jobs
            if (job[b"state"], job[b"reason"], job[b"deliveries"], job[b"attempts"]) != (b"dead", b"attempts", ATTEMPTS, ATTEMPTS)
        ],
    )
    broken = [endpoint for endpoint in run.endpoints if endpoint.temper == "400 to some"]
    claim(
        "a payload that is rejected is dead at once, the others are not",
        [
            named(e, job[b"id"].decode())
            for e in broken
            for job in e.jobs
            if (job[b"state"], job[b"reason"], job[b"deliveries"]) not in ((b"done", None, 1), (b"dead", b"failed", 1))
            or (job[b"state"] == b"dead") != json.loads(job[b"payload"])["broken"]
        ],
    )

    def too_early(endpoint):
        """Requests within Retry-After that were handed out when the queue knew of it already."""
        arrived = {token: at for token, _number, at, _status in endpoint.seen}
        rests = [attempt for attempt in endpoint.attempts if attempt.status == 429]
        return [
            other
            for rest in rests
            for other in endpoint.attempts
            if granted(other) > rest.reported and arrived[other.token] < arrived[rest.token] + RETRY_AFTER
        ]

    throttling = [endpoint for endpoint in run.endpoints if endpoint.temper == "429"]
    claim(
        "no request within Retry-After of a 429, but those in flight",
        [named(e, f"{len(too_early(e))} requests") for e in throttling if too_early(e)]
        + [named(e, "never said 429") for e in throttling if all(attempt.status != 429 for attempt in e.attempts)],
    )
    claim(
        "no endpoint had more requests at once than its CONCURRENCY",
        [
            named(e, f"{e.most_active}")
            for e in endpoints
            if e.most_active > (1 if (e.tenant, e.name) == ONE_AT_A_TIME else GROUP_CONCURRENCY)
        ],
    )
    claim(
        "nothing was handed out while it was paused, and all of it afterwards",
        [
            named(e, attempt.token)
            for (tenant, name), (start, end) in run.pauses.items()
            for e in run.endpoints
            if e.tenant == tenant and name in (None, e.name)
            for attempt in e.attempts
            if start < granted(attempt) < int(end)
        ]
        + ([] if run.pauses else ["nothing was paused"]),
    )
    held = {(group[b"tenant"].decode(), group[b"group"].decode()): (group[b"held"], group[b"held-by"]) for group in run.reasons}
    due = {(e.tenant, e.name): {(b"backoff", b"group"), (b"probe", b"group")} for e in run.endpoints if e.temper == "refusing"}
    due.update({(e.tenant, e.name): {(b"paused", b"tenant")} for e in run.endpoints if e.tenant == PAUSED_TENANT})
    due[PAUSED_ENDPOINT] = {(b"paused", b"group")}
    claim(
        "RQ.GROUP.LIST said of each of these, and of what is down, why it was not served",
        [f"{'/'.join(name)}: {held.get(name)}" for name, words in due.items() if held.get(name) not in words],
    )
    return problems


class Forwarding:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="rq-forward-")
        self.path = os.path.join(self.folder, "socket")
        self.processes = []
        self.server = None

    def start(self, *command):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def start_server(self):
        log = os.path.join(self.folder, "log")
        # Without a file, since here waits are compared; a real one has `appendonly yes`.
        settings = ["--port", "0", "--unixsocket", self.path, "--dir", self.folder, "--logfile", log, "--save", "", "--appendonly", "no"]
        process = self.start(self.options.server, *settings, "--loadmodule", os.path.abspath(self.options.module))
        while True:
            try:
                self.server = Connection(self.path)
                self.server.call("RQ.QUEUES")
                return
            except (OSError, ServerError):
                if process.poll() is not None:
                    with open(log, encoding="utf-8", errors="replace") as file:
                        sys.exit("the server did not start:\n" + file.read())
                time.sleep(0.01)

    def logs(self, queue):
        return [os.path.join(self.folder, f"{queue}-{number}") for number in range(1, WORKERS + 1)]

    def start_workers(self, queue):
        return [
            self.start(sys.executable, os.path.abspath(__file__), "--worker", self.path, queue, f"{socket.gethostname()}-{number}", log)
            for number, log in enumerate(self.logs(queue), 1)
        ]

    def run(self):
        limits = not self.options.without_limits
        self.start_server()
        problems = []
        for again in (False, True):
            run, alone = self.run_both(again, limits)
            problems += check(run, alone)
            too_long = compare(run, alone)
            if not too_long or again or not limits:
                break
            # A machine that had other things to do is told from a fault by this: the fault is there each time.
            print("\nThe waits again, in case something else kept the machine busy:\n", flush=True)
        problems += too_long
        for problem in problems:
            print(f"WRONG: {problem}", file=sys.stderr)
        print("\nEverything is as it should be." if not problems else "\nThe example FAILED.")
        return 1 if problems else 0

    def run_both(self, again, limits):
        """All tenants together, then the fast ones alone."""
        run = Run(self, "hooks-again" if again else "hooks", ("swift", "brisk", "slow", "outage", "picky"), limits)
        print(f"{len(run.endpoints)} endpoints of 5 tenants, {WORKERS} workers with {PLACES} places each; it takes half a minute", flush=True)
        run.run()
        alone = Run(self, "alone-again" if again else "alone", FAST, limits)
        alone.run()
        run.print_reasons()
        run.print_table()
        sent = sum(len(endpoint.sent) for endpoint in alone.endpoints)
        attempts = sum(len(endpoint.attempts) for endpoint in alone.endpoints)
        print(f"\n  {'fast alone':10} {sent:5} {attempts:8} {alone.longest():9,.0f} ms\n")
        return run, alone

    def clean(self):
        for process in reversed(self.processes):  # the server last
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def interrupted(_signal, _frame):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description="Forward payloads over HTTP through a job queue in Redis.")
    parser.add_argument("--module", help="the built module")
    parser.add_argument("--server", default="redis-server", help="the server's program")
    parser.add_argument("--without-limits", action="store_true", help="let tenants take as many workers as they can")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return 0
    signal.signal(signal.SIGTERM, interrupted)
    forwarding = Forwarding(options)
    try:
        return forwarding.run()
    except KeyboardInterrupt:
        print("\ninterrupted")
        return 130
    finally:
        forwarding.clean()


if __name__ == "__main__":
    sys.exit(main())
