"""Trials of the forwarder, one after the other: each with its own queue, the real command line, and real HTTP."""

import functools
import json
import re
import threading
import time

from common import expect, since, until
from endpoints import Endpoint, Listener

HOUR = 3_600_000  # ms


def body(number, **more):
    return json.dumps({"number": number, **more})


def fill(forwarder, endpoint, count, **more):
    return [forwarder.register(endpoint.domain, endpoint.name, body(number, **more), f"key {number}") for number in range(count)]


def numbers(endpoint, status=200):
    return [number for _delivery, number, _arrived, seen in endpoint.seen if seen == status]


def granted(delivery):
    """When the queue handed it out, Unix ms: a token begins with that instant."""
    return int(delivery.split("-")[0])


class Trial:
    """A queue, the endpoints of a trial, and what is started for them."""

    def __init__(self, lab, name):
        self.lab, self.queue = lab, name
        self.forwarder = lab.forwarder(name)
        self.listeners = []

    def listen(self, *endpoints, open=True):
        listener = Listener(*endpoints)
        self.listeners.append(listener)
        if open:
            listener.open()
        for endpoint in endpoints:
            self.cli("endpoint", endpoint.domain, endpoint.name, endpoint.url)
        return listener

    def cli(self, *words, **more):
        return self.lab.cli(self.queue, *words, **more)

    def job(self, record):
        job = self.forwarder.call_map("JOB", record)
        expect(f"{record} is known", job is not None)
        return job

    def stats(self):
        return self.forwarder.call_map("STATS")

    def group(self, endpoint):
        return self.forwarder.call_map("GROUP.GET", endpoint.name, "TENANT", endpoint.domain)

    def deliveries(self, records):
        return sum(self.job(record)["deliveries"] for record in records)

    def settled(self, count):
        """Waits until so many records are final."""
        until(f"{self.queue}: all records end", lambda: sum(self.stats()[state] for state in ("done", "dead", "cancelled")) == count)

    def close(self):
        for listener in self.listeners:
            listener.close()


def command_line(trial):
    """What the page shows: from registering to the report, in the words of the command line."""
    endpoint = Endpoint("acme", "hooks", "400 to some")
    rejecting = Endpoint("acme", "old system", "500")
    trial.listen(endpoint, rejecting)
    trial.cli("endpoint", "acme", "hooks", endpoint.url, "--method", "PUT", "--header", "Authorization: Bearer secret")
    trial.cli("setup", speed=3600)
    settings = trial.forwarder.call_map("QUEUE.GET")
    expect("an hour is a second, if you like", (settings["backoff"], settings["group-backoff"]) == ([1000, 168_000], [83, 6000]))
    trial.cli("setup", "--attempts", "2", "--retry-wait", "1h", "--keep", "1d")
    expect("an unknown endpoint is refused", trial.lab.run(trial.queue, "register", "acme", "hoks", input="{}").returncode != 0)
    expect("a misspelt time is refused", trial.lab.run(trial.queue, "pause", "--for", "1 hour").returncode != 0)
    record = trial.cli("register", "acme", "hooks", "--key", "form 1", input=body(1)).strip()
    expect("the id tells where it goes", record == "acme/hooks/form%201")
    again = trial.cli("register", "acme", "hooks", "--key", "form 1", input=body(1)).strip()
    expect("the same key is registered once", again == record and trial.stats()["ready"] == 1)
    odd = trial.cli("register", "acme", "hooks", input=body(2, odd=True)).strip()
    hours = trial.cli("register", "acme", "old system", input=body(3)).strip()

    trial.cli("pause", "--domain", "acme")
    worker = trial.lab.worker(trial.queue)
    until("the worker waits", lambda: trial.stats()["waiting-workers"])
    report = trial.cli("report")
    expect("the report says that the domain is paused", re.search(r"^acme .* paused \(tenant\)$", report, re.M))
    expect("and what waits", re.search(r"^  hooks +2 +0 +0 +0 +0 +0 ", report, re.M))
    trial.cli("resume", "--domain", "acme")
    until("what can end has ended", lambda: trial.stats()["done"] == 1 and trial.stats()["dead"] == 1 and trial.stats()["delayed"] == 1)
    job = trial.job(record)
    expect("the answer is kept", job["result"] == b'200 {"status": 200}')
    job = trial.job(odd)
    sent = (endpoint.method, endpoint.headers["Authorization"], endpoint.headers["Idempotency-Key"].split("/")[:2])
    expect("as the endpoint wants it", sent == ("PUT", "Bearer secret", ["acme", "hooks"]))
    expect("a rejected payload is dead at once", (job["state"], job["reason"], job["attempts"]) == (b"dead", b"failed", 1))
    expect("the record of the other waits for an hour", trial.job(hours)["due"] > time.time() * 1000 + HOUR / 2)
    listed = trial.cli("records", "--domain", "acme", "--endpoint", "old system")
    expect("it is listed", re.search(rf"^delayed +{re.escape(hours)}  attempts 1, sent 1 times$", listed, re.M))
    expect("it is shown", f"id: {odd}" in trial.cli("show", odd) and "reason: failed" in trial.cli("show", odd))

    # The operator sends it now, it dies, and is sent again.
    trial.cli("retry", hours)
    until("it is dead", lambda: trial.job(hours)["state"] == b"dead")
    job = trial.job(hours)
    expect("dead when its attempts are used up", (job["reason"], job["attempts"], len(rejecting.seen)) == (b"attempts", 2, 2))
    rejecting.temper = "fast"
    told = trial.cli("retry", "--domain", "acme", "--endpoint", "old system")
    expect("all dead records of an endpoint are sent again", told == "1 records are sent again\n")
    until("it is sent", lambda: trial.job(hours)["state"] == b"done")
    expect("a record that was sent is sent again", trial.cli("retry", record) == f"{record}: ready\n")
    until("it was", lambda: len(numbers(endpoint)) == 2 and trial.job(record)["state"] == b"done")

    # Cancelled, by name and by endpoint; and what becomes of a removed endpoint.
    trial.cli("pause", "--domain", "acme", "--endpoint", "hooks")
    waiting = fill(trial.forwarder, endpoint, 5)
    expect("one is cancelled", trial.cli("cancel", waiting[0]) == f"{waiting[0]}: cancelled\n")
    expect("the others are", trial.cli("cancel", "--domain", "acme", "--endpoint", "hooks") == "4 records cancelled\n")
    expect("an unknown one is not", trial.cli("cancel", "acme/hooks/none") == "acme/hooks/none: unknown\n")
    trial.cli("pause", "--domain", "acme", "--endpoint", "old system")
    fill(trial.forwarder, rejecting, 3)
    expect("a removed endpoint's are", trial.cli("remove", "acme", "old system") == "3 records cancelled\n")
    trial.cli("resume", "--domain", "acme", "--endpoint", "old system")
    late = trial.forwarder.register("acme", "old system", body(9))
    until("one that came later is dead", lambda: trial.job(late)["state"] == b"dead")
    expect("it says why", trial.job(late)["error"] == b"no such endpoint")

    before = trial.lab.server.spent()
    report = json.loads(trial.cli("report", "--json"))
    asked = {name.lower() for name in since(before, trial.lab.server.spent())}
    asked -= {"hello", "client|setinfo", "select", "rq.claim"}  # of the client library, of the worker
    expect(f"a report takes three commands: {asked}", asked == {"rq.stats", "rq.tenant.list", "rq.group.list"})
    hooks = report["domains"]["acme"]["endpoints"]["hooks"]
    expect("the report counts", (hooks["done"], hooks["dead"], hooks["cancelled"], hooks["held"]) == (1, 1, 5, "paused"))
    expect("it knows the waits", report["totals"]["wait-time"]["count"] == report["totals"]["totals"]["delivered"])
    worker.terminate()
    expect("SIGTERM ends the worker in good order", worker.wait(60) == 0)


def killed_in_mid_request(trial):
    """kill -9 while requests are out: their records are sent again, under the same Idempotency-Key, and no other is lost."""
    endpoint = Endpoint("acme", "hooks", "fast")
    endpoint.gate.clear()
    trial.listen(endpoint)
    records = fill(trial.forwarder, endpoint, 20)
    first = trial.lab.worker(trial.queue, "--places", "3", "--lease", "1500ms")
    until("three requests are out", lambda: len(endpoint.seen) == 3)
    until("their leases were extended", lambda: all((job["lease-until"] or 0) > job["claimed"] + 1500 for job in map(trial.job, records[:3])))
    first.kill()
    first.wait()
    endpoint.gate.set()
    expect("its places are taken until the leases end", trial.stats()["active"] == 3)
    trial.lab.worker(trial.queue, "--places", "3", "--lease", "1500ms")
    trial.settled(20)
    sent = numbers(endpoint)
    expect("every record was sent", sorted(set(sent)) == list(range(20)))
    expect("three of them twice", sorted(sent) == sorted([*range(20), 0, 1, 2]))
    jobs = [trial.job(record) for record in records]
    expect("all are done", all(job["state"] == b"done" and job["attempts"] == 0 for job in jobs))
    expect("three lost a worker", [job["crashes"] for job in jobs] == [1, 1, 1] + [0] * 17)


def too_many_requests(trial):
    """429 with Retry-After: the endpoint rests, gets less at once afterwards, and no attempt is used."""
    endpoint = Endpoint("acme", "hooks", "429", burst=5)
    trial.listen(endpoint)
    trial.cli("setup", "--at-once", "8", "--attempts", "1")
    fill(trial.forwarder, endpoint, 25)
    trial.lab.worker(trial.queue)

    def rests():
        group = trial.group(endpoint)
        return group if group["active"] == 0 and group["throttled-until"] is not None else None

    lowered = 0
    while True:
        group = until("a rest, or the end", lambda: rests() or (trial.stats()["done"] == 25 and "ended"))
        if group == "ended":
            break
        seen, rests_until = len(endpoint.seen), endpoint.rests_until
        expect("the concurrency is lowered", group["concurrency"] < 8)
        until("the next request", lambda: len(endpoint.seen) > seen)
        delivery, _number, arrived, _status = endpoint.seen[seen]
        expect("it comes after the rest", granted(delivery) >= group["throttled-until"] - 1)
        expect("which is as long as the endpoint wanted", arrived >= rests_until)
        lowered += 1
    expect("there were rests", lowered >= 2)
    expect("each was taken once", sorted(numbers(endpoint)) == list(range(25)))
    expect("no attempt was used", all(job["attempts"] == 0 for page in trial.forwarder.records("done") for job in page))


def in_order(trial):
    """An ordered endpoint gets its records as they were registered, also if one has to be sent again."""
    endpoint = Endpoint("acme", "hooks", "fast", takes=0.005)
    trial.listen(endpoint)
    trial.cli("endpoint", "acme", "hooks", endpoint.url, "--ordered")
    trial.cli("setup", "--retry-wait", "100ms")
    decide, failed = endpoint.decide, []

    def fails_once(now, payload):
        if payload["number"] == 3 and len(failed) < 2:
            failed.append(payload["number"])
            return 500, {}
        return decide(now, payload)

    endpoint.decide = fails_once
    fill(trial.forwarder, endpoint, 10)
    trial.lab.worker(trial.queue)
    trial.settled(10)
    expect("two attempts failed", numbers(endpoint, 500) == [3, 3])
    expect("in order", numbers(endpoint) == list(range(10)))
    expect("one at a time", endpoint.most_active == 1)


def limits(trial):
    """What an endpoint and a domain may get, at once and per time: what has to wait for it is not touched."""
    slow = [Endpoint("acme", f"slow {number}", "fast", takes=0.1) for number in range(3)]
    rated = Endpoint("other", "rated", "fast")
    trial.listen(*slow, rated)
    trial.cli("domain", "acme", "--at-once", "2", "--weight", "3")
    trial.cli("endpoint", "other", "rated", rated.url, "--rate", "3/600ms")
    with CountAtOnce(slow) as count:
        records = [record for endpoint in (*slow, rated) for record in fill(trial.forwarder, endpoint, 9)]
        trial.cli("setup", "--keep", "1h")
        trial.lab.worker(trial.queue)
        trial.settled(36)
    expect(f"two at once of the domain: {count.most}", count.most == 2)
    handed = sorted(granted(delivery) for delivery, *_ in rated.seen)
    # A tenth of the time between two is made good if a turn was taken late, and the tokens are in whole ms.
    expect(f"three at once, then one in 200 ms: {handed}", all(at - handed[0] >= 200 * (number - 2) - 21 for number, at in enumerate(handed)))
    expect("each was handed out once", all(trial.job(record)["deliveries"] == 1 for record in records))


class CountAtOnce:
    """How many requests several endpoints had at once, together."""

    def __init__(self, endpoints):
        self.endpoints, self.lock, self.now, self.most = endpoints, threading.Lock(), 0, 0

    def __enter__(self):
        for endpoint in self.endpoints:
            endpoint.answer = functools.partial(self.counted, endpoint.answer)
        return self

    def __exit__(self, *_error):
        pass

    def counted(self, answer, delivery, payload):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        reply = answer(delivery, payload)
        with self.lock:
            self.now -= 1
        return reply


def operators(trial):
    """An operator stops for a while, has an offline endpoint asked at once, and finds a job that is no record."""
    endpoint = Endpoint("acme", "hooks", "fast")
    closed = trial.listen(endpoint, open=False)
    trial.cli("setup", "--offline-wait", "1h")
    fill(trial.forwarder, endpoint, 5)
    foreign = trial.forwarder.call("ENQUEUE", "no record")
    trial.lab.worker(trial.queue, "--places", "1")
    until("it is offline", lambda: trial.group(endpoint)["held"] == b"backoff")
    expect("for an hour", trial.group(endpoint)["circuit-until"] > time.time() * 1000 + HOUR / 2)
    until("what is no record is dead", lambda: trial.job(foreign)["state"] == b"dead")
    closed.open()
    trial.cli("pause", "--for", "500ms")
    trial.cli("resume", "--domain", "acme", "--endpoint", "hooks")
    until("all are sent", lambda: trial.stats()["done"] == 5)
    expect("once", sorted(numbers(endpoint)) == list(range(5)))


def one_bad_payload(trial):
    """A payload for which a proxy says 502 each time, as if the endpoint were down: the others get past it, in the end it is given up."""
    endpoint = Endpoint("acme", "hooks", "502 to some")
    trial.listen(endpoint)
    trial.cli("setup", "--offline-wait", "50ms", "--offline-max", "200ms", "--at-once", "1")
    bad = trial.forwarder.register("acme", "hooks", body(100, odd=True))
    fill(trial.forwarder, endpoint, 10)
    worker = trial.lab.worker(trial.queue)
    until("the others are sent", lambda: trial.stats()["done"] == 10)
    expect("each once", sorted(numbers(endpoint)) == list(range(10)))
    expect("it was tried before them", endpoint.seen[0][1] == 100)
    expect("it still waits", trial.job(bad)["state"] in (b"ready", b"delayed", b"active"))
    worker.terminate()
    worker.wait()
    trial.lab.worker(trial.queue, "--give-up", "1s")
    until("it is given up", lambda: trial.job(bad)["state"] == b"dead")
    job = trial.job(bad)
    expect("it says why", job["reason"] == b"failed" and job["error"].startswith(b"given up, the last answer: 502"))


def probes(first, most, down, factor=1.0):
    """How often an endpoint is asked, besides by what was under way, while it is down: if each wait is `factor` of what it can be."""
    at, level = 0.0, 0
    while (at := at + factor * min(first * 2**level, most)) < down:
        level += 1
    return level


def a_week(trial, clock):
    """Back-offs of hours and days, as they are set without options, while the server's clocks are turned on from one due instant to the next."""
    rare = Endpoint("acme", "rare", "fast", now=clock.hours)
    often = Endpoint("acme", "often", "fast", now=clock.hours)
    failing = Endpoint("other", "failing", "500", now=clock.hours)
    healthy = Endpoint("other", "healthy", "fast", now=clock.hours)
    trial.listen(failing, healthy)
    closed = trial.listen(rare, often, open=False)
    trial.cli("setup")
    trial.cli("endpoint", "acme", "rare", rare.url, "--offline-wait", "5m", "--offline-max", "7d")
    records = {endpoint: fill(trial.forwarder, endpoint, 30) for endpoint in (rare, often)}
    failures = fill(trial.forwarder, failing, 2)
    trial.lab.worker(trial.queue, "--places", "4", "--give-up", "30d")
    monday, opened, days = clock.now() + 60 * HOUR, None, 0  # from Friday evening on
    while True:
        until("nothing is out", lambda: trial.stats()["active"] == 0 and trial.stats()["waiting-workers"])
        record = trial.forwarder.register("other", "healthy", body(days))
        days += 1
        until("the healthy endpoint is served at once", lambda: trial.job(record)["state"] == b"done")
        if opened is None and clock.now() >= monday:
            closed.open()
            opened = clock.hours()
        before = trial.stats()["totals"]
        delayed = [job["due"] for page in trial.forwarder.records("delayed") for job in page]
        due = [*delayed, *(instant for endpoint in records if (instant := trial.group(endpoint)["circuit-until"]) is not None)]
        if not due:
            break
        if opened is None and min(due) > monday:
            clock.turn_on_to(monday)
        else:
            clock.turn_on_to(min(due) + 1)
            until("what is due is done", lambda: (now := trial.stats())["totals"] != before or now["delayed"] < len(delayed))
        expect("it ends", clock.hours() < 24 * 30)
    trial.settled(62 + days)
    lines = []
    for endpoint, most in ((rare, 7 * 24 * 60), (often, 6 * 60)):  # minutes
        wasted = trial.deliveries(records[endpoint]) - len(endpoint.seen)
        least, greatest = probes(5, most, 60 * 60), 4 + probes(5, most, 60 * 60, 0.75)
        expect(f"down for 60 hours, it is asked {least} to {greatest} times: {wasted}", least < wasted <= greatest)
        expect("then everything is sent, once", sorted(numbers(endpoint)) == list(range(30)))
        expect("no attempt was used", all(trial.job(record)["attempts"] == 0 for record in records[endpoint]))
        sent = [arrived - opened for _delivery, _number, arrived, _status in endpoint.seen]
        expect("at the latest with the next probe", max(sent) <= min(most / 60, 2 * 60) + 0.1)
        lines.append(f"with waits of at most {most // 60} h asked {wasted} times, all sent {max(sent):.1f} h after it was back")
    for record in failures:
        job = trial.job(record)
        expect("what always fails is dead after 8 attempts", (job["state"], job["reason"], job["attempts"]) == (b"dead", b"attempts", 8))
    at = [arrived for _delivery, number, arrived, _status in failing.seen if number == 0]
    gaps = [after - before for before, after in zip(at, at[1:])]
    expect(f"eight times: {gaps}", len(gaps) == 7)
    expect(f"after 1, 2, 4 … 64 hours, less up to a quarter: {gaps}", all(0.74 * 2**n < gap < 2**n + 0.1 for n, gap in enumerate(gaps)))
    print(f"       two endpoints with 30 records each, offline for {opened:.0f} hours: " + "; ".join(lines))
    print(f"       a record that fails each time: sent after {', '.join(f'{hour - at[0]:.0f}' for hour in at)} hours, then dead")
