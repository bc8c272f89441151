"""The same records to the same endpoints, with the same workers: by endpoint and domain, and as one task per record.

Five domains with ten endpoints each, of different tempers. The plain way is the same forwarder without groups: each record
stands for itself in one queue and is tried again by its own back-off, which is as long as an endpoint's. Then the two healthy
domains do the same alone, which tells what the others cost them.
"""

import collections
import json
import math
import statistics
import time

from common import Wrong, expect, table, until
from endpoints import Endpoint, Listener
from forwarder import Forwarder, as_map
from trials import probes

WORKERS, PLACES = 4, 3
DOMAIN_AT_ONCE, ENDPOINT_AT_ONCE = 3, 2  # of the 12 places a domain may have 3: a quarter; nothing is reserved by that
WAIT, MOST_WAIT = 200, 4000  # ms, of an endpoint that is offline and of a record that failed
ATTEMPTS = 3
TIMEOUT, GIVE_UP = 1, 8  # seconds for an answer, and for a record that gets none
HEALTHY = ("swift", "brisk")
DOMAINS = (*HEALTHY, "slow", "outage", "picky")
WAVES, WAVE_EVERY = 10, 0.7  # seconds
DOWN = {"refusing": (0.0, 4.0), "hanging": (0.0, 4.0), "503": (1.2, 4.5)}  # seconds after the start
PAUSE, LOOK, RESUME = 1.5, 2.2, 3.0
PAUSED_ENDPOINT, PAUSED_DOMAIN = ("outage", "e9"), "slow"


def endpoints_of(domain):
    tempers = {
        "slow": ["slow"] * 10,
        "outage": ["refusing"] * 3 + ["hanging"] * 2 + ["503"] * 2 + ["fast"] * 3,
        "picky": ["500"] * 3 + ["429"] * 3 + ["400 to some"] * 2 + ["502 to some"] * 2,
    }.get(domain, ["fast"] * 10)
    return [
        Endpoint(domain, f"e{number}", temper, 0.3 if temper == "slow" else 0.025, DOWN.get(temper))
        for number, temper in enumerate(tempers)
    ]


def at_start(endpoint):
    return {"slow": 5, "refusing": 10, "hanging": 6, "503": 5, "500": 4, "429": 10, "502 to some": 1}.get(endpoint.temper, 0)


def each_wave(endpoint):
    return 0 if endpoint.temper in ("slow", "500", "429") else 1


def each_other_wave(endpoint):
    return 1 if endpoint.temper == "slow" else each_wave(endpoint)


def is_odd(endpoint, number):
    """Which payloads an endpoint never accepts, if it minds them."""
    return number == 0 if endpoint.temper == "502 to some" else number % 3 == 2


class Plain(Forwarder):
    """One task per record."""

    def place(self, domain, endpoint):
        return []


class Run:
    """One queue with its endpoints, served by the workers until all records have ended."""

    def __init__(self, lab, queue, domains=DOMAINS, kind=Forwarder, limits=True):
        self.lab, self.queue, self.groups = lab, queue, kind is Forwarder
        self.forwarder = kind(lab.url, queue)
        self.endpoints = [endpoint for domain in domains for endpoint in endpoints_of(domain)]
        self.by_name = {(endpoint.domain, endpoint.name): endpoint for endpoint in self.endpoints}
        self.closed = [Listener(endpoint) for endpoint in self.endpoints if endpoint.temper == "refusing"]
        self.listeners = self.closed + [Listener(*(endpoint for endpoint in self.endpoints if endpoint.temper != "refusing"))]
        self.sent = {endpoint: [] for endpoint in self.endpoints}  # by number: when it was registered
        self.ids = {endpoint: [] for endpoint in self.endpoints}
        self.jobs = {}
        self.at_pause = {}  # endpoint: requests that it had seen, then and before it went on
        self.groups_then = {}  # by domain and name, as reported during the pause
        wait = [f"{WAIT}ms", f"{MOST_WAIT}ms"]
        lab.cli(queue, "setup", "--attempts", str(ATTEMPTS), "--retry-wait", wait[0], "--retry-max", wait[1], "--offline-wait", wait[0],
                "--offline-max", wait[1], "--at-once", str(ENDPOINT_AT_ONCE))  # fmt: skip
        for endpoint in self.endpoints:
            self.forwarder.set_endpoint(endpoint.domain, endpoint.name, endpoint.url)
        if limits and self.groups:
            for domain in domains:
                self.forwarder.call("TENANT.SET", domain, "CONCURRENCY", DOMAIN_AT_ONCE)

    def register(self, how_many):
        """So many records for each endpoint, in one go."""
        records = []
        for endpoint in self.endpoints:
            for _ in range(how_many(endpoint)):
                number = len(self.sent[endpoint])
                self.sent[endpoint].append(time.monotonic())
                payload = json.dumps({"number": number, "odd": is_odd(endpoint, number)})
                records.append((endpoint, payload, f"{number}"))
        ids = self.forwarder.register_all((endpoint.domain, endpoint.name, payload, key) for endpoint, payload, key in records)
        for (endpoint, _payload, _key), record in zip(records, ids):
            self.ids[endpoint].append(record)

    def paused(self):
        return [e for e in self.endpoints if e.domain == PAUSED_DOMAIN or (e.domain, e.name) == PAUSED_ENDPOINT]

    def pause(self):
        domain, name = PAUSED_ENDPOINT
        self.forwarder.call("PAUSE", *self.forwarder.where(domain, name))
        self.forwarder.call("PAUSE", *self.forwarder.where(PAUSED_DOMAIN))
        active = lambda e: self.forwarder.call_map("GROUP.GET", e.name, "TENANT", e.domain)["active"]  # noqa: E731
        until("what was under way is done", lambda: not any(active(endpoint) for endpoint in self.paused()))
        self.at_pause = {endpoint: [len(endpoint.seen)] for endpoint in self.paused()}

    def look(self):
        domains, _totals = self.forwarder.report()
        self.groups_then = {(domain, name): group for domain, tenant in domains.items() for name, group in tenant["endpoints"].items()}

    def resume(self):
        for endpoint, counts in self.at_pause.items():
            counts.append(len(endpoint.seen))
        domain, name = PAUSED_ENDPOINT
        self.forwarder.call("RESUME", *self.forwarder.where(domain, name))
        self.forwarder.call("RESUME", *self.forwarder.where(PAUSED_DOMAIN))

    def run(self):
        self.listeners[-1].open()
        words = ("--places", str(PLACES), "--timeout", str(TIMEOUT), "--give-up", f"{GIVE_UP}s")
        workers = [self.lab.worker(self.queue, *words) for _ in range(WORKERS)]
        until("all workers wait", lambda: self.places_that_wait() == WORKERS * PLACES)
        start = time.monotonic()
        for endpoint in self.endpoints:
            endpoint.start = start
        events = [(0.0, lambda: self.register(at_start))]
        events += [(wave * WAVE_EVERY, lambda wave=wave: self.register(each_wave if wave % 2 else each_other_wave)) for wave in range(WAVES)]
        events += [(DOWN["refusing"][1], listener.open) for listener in self.closed]
        if self.groups and PAUSED_ENDPOINT in self.by_name:
            events += [(PAUSE, self.pause), (LOOK, self.look), (RESUME, self.resume)]
        for at, event in sorted(events, key=lambda event: event[0]):
            time.sleep(max(0.0, start + at - time.monotonic()))
            event()
        until("all records end", lambda: self.ended(workers))
        for worker in workers:
            self.lab.stage.end(worker)
        for listener in self.listeners:
            listener.close()
        self.collect()
        return self

    def places_that_wait(self):
        return int(self.lab.server.info("rq")["rq_waiting_clients"])

    def ended(self, workers):
        expect("the workers work", all(worker.poll() is None for worker in workers))
        stats = self.forwarder.call_map("STATS")
        return not any(stats[state] for state in ("ready", "delayed", "active"))

    def collect(self):
        for endpoint in self.endpoints:
            pipeline = self.forwarder.redis.pipeline(transaction=False)
            for record in self.ids[endpoint]:
                pipeline.execute_command("RQ.JOB", self.queue, record)
            self.jobs[endpoint] = [as_map(job) for job in pipeline.execute()]

    def wasted(self, endpoint):
        """Requests while it was down: what was tried, but for what it answered."""
        return sum(job["deliveries"] for job in self.jobs[endpoint]) - len(endpoint.answered())

    def waits(self, endpoint):
        """Of its records, ms: from being registered until the endpoint took or rejected it for good."""
        first = {}
        for _delivery, number, arrived, status in endpoint.answered():
            if status not in (429, 502):
                first.setdefault(number, arrived)
        return [1000 * (first[number] - sent) for number, sent in enumerate(self.sent[endpoint]) if number in first]

    def of(self, *domains):
        return [endpoint for endpoint in self.endpoints if endpoint.domain in domains]

    def jobs_of(self, *tempers):
        return [(endpoint, job) for endpoint in self.endpoints if endpoint.temper in tempers for job in self.jobs[endpoint]]

    def figures(self):
        down = [endpoint for endpoint in self.endpoints if endpoint.down]
        healthy = sorted(wait for endpoint in self.of(*HEALTHY) for wait in self.waits(endpoint))
        return {
            "records": sum(map(len, self.ids.values())),
            "requests": sum(job["deliveries"] for jobs in self.jobs.values() for job in jobs),
            "down": sum(map(self.wasted, down)),
            "bad": sum(job["deliveries"] for _endpoint, job in self.jobs_of("502 to some") if job["state"] == b"dead"),
            "p50": percentile(healthy, 50),
            "p99": percentile(healthy, 99),
            "longest": healthy[-1],
        }

    def figures_of(self, domain):
        """What became of the records of a domain: how many, dead, requests, and the median and the longest wait, ms."""
        jobs = [job for endpoint in self.of(domain) for job in self.jobs[endpoint]]
        ended = sorted(wait for endpoint in self.of(domain) for wait in self.waits(endpoint))
        dead, requests = sum(job["state"] == b"dead" for job in jobs), sum(job["deliveries"] for job in jobs)
        return [len(jobs), dead, requests, percentile(ended, 50), ended[-1]]

    # What must be so, whichever way

    def check(self):
        problems = []

        def claim(text, wrong):
            print(f"       {'ok   ' if not wrong else 'WRONG'} {text}")
            problems.extend(f"{text}: {what}" for what in wrong)

        def named(endpoint, what=""):
            return f"{endpoint.domain}/{endpoint.name} {what}"

        def ended_rightly(job):
            return (job["reason"] == b"failed") == json.loads(job["payload"])["odd"]

        ended = (b"done", b"dead")
        claim("every record has ended", [named(e, job) for e in self.endpoints for job in self.jobs[e] if not job or job["state"] not in ended])
        def is_right(endpoint, number):
            """Taken once; again only if its worker did not wait for the answer, as on a machine that is too busy."""
            times, error = taken[endpoint][number], self.jobs[endpoint][number]["error"] or b""
            if endpoint.temper == "500" or (endpoint.temper.endswith("to some") and is_odd(endpoint, number)):
                return times == 0
            return times == 1 or (times > 1 and b"Timeout" in error)

        taken = {e: collections.Counter(number for _delivery, number, _arrived, status in e.seen if status == 200) for e in self.endpoints}
        claim(
            "each payload was taken once, unless its endpoint rejects it",
            [named(e, number) for e in self.endpoints for number in range(len(self.sent[e])) if not is_right(e, number)],
        )
        claim("what is offline or throttles used up no attempt", [named(e, job["id"]) for e, job in self.jobs_of(*DOWN, "429") if job["attempts"]])
        wanted = (b"attempts", ATTEMPTS, ATTEMPTS)
        claim(
            f"what always fails is dead after {ATTEMPTS} attempts",
            [named(e, job["id"]) for e, job in self.jobs_of("500") if (job["reason"], job["deliveries"], job["attempts"]) != wanted],
        )
        claim(
            "a payload that is rejected is dead at once, the others are not",
            [named(e, job["id"]) for e, job in self.jobs_of("400 to some") if job["deliveries"] != 1 or not ended_rightly(job)],
        )
        claim(
            "a payload that never gets an answer is given up, the others get past it",
            [named(e, job["id"]) for e, job in self.jobs_of("502 to some") if not ended_rightly(job)],
        )
        if not self.groups:
            return problems
        down = [e for e in self.endpoints if e.down]
        bounds = {e: ENDPOINT_AT_ONCE + probes(WAIT / 1000, MOST_WAIT / 1000, e.down[1] - e.down[0], 0.75) for e in down}
        claim(
            f"an endpoint that is offline is asked as often as its back-off allows (at most {max(bounds.values(), default=0)} times)",
            [named(e, f"{self.wasted(e)} times") for e in down if not 1 <= self.wasted(e) <= bounds[e]],
        )
        claim("no endpoint got more at once than it may", [named(e, e.most_active) for e in self.endpoints if e.most_active > ENDPOINT_AT_ONCE])
        claim("nothing was sent during a pause", [named(e, counts) for e, counts in self.at_pause.items() if counts[0] != counts[1]])
        if self.at_pause:
            then = self.groups_then
            claim("the report said which were paused", [named(e) for e in self.at_pause if then[e.domain, e.name]["held"] != b"paused"])
            known = [e for e in self.endpoints if e.temper != "502 to some"]
            claim("and which were offline", [named(e) for e in known if bool(e.down) != bool(then[e.domain, e.name]["circuit-level"])])
        return problems


def percentile(ordered, percent):
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


WAYS = {"by endpoint and domain": {}, "one task per record": {"kind": Plain}, "the healthy alone": {"domains": HEALTHY}}
WITHOUT_LIMITS = {"by endpoint, no limit per domain": {"limits": False}}
LINES = {
    "records": "records",
    "requests": "requests",
    "down": "requests to endpoints that were down",
    "bad": "requests for the two payloads that never get an answer",
    "p50": "wait of the healthy domains: median, ms",
    "p99": "99 of 100 within, ms",
    "longest": "the longest, ms",
}


def compare(lab, full):
    ways = {**WAYS, **(WITHOUT_LIMITS if full else {})}
    print(f"  {len(DOMAINS) * 10} endpoints of {len(DOMAINS)} domains, {WORKERS} workers with {PLACES} places each", flush=True)
    found, domains, problems = {way: [] for way in ways}, collections.defaultdict(list), []
    rounds = 5 if full else 1
    while True:
        number = len(found["the healthy alone"])
        for way, settings in ways.items():
            run = Run(lab, f"{way}-{number}", **settings).run()
            print(f"  {way}, round {number + 1}:", flush=True)
            problems += run.check()
            found[way].append(run.figures())
            for domain in DOMAINS:
                domains[way, domain].append(run.figures_of(domain) if run.of(domain) else None)
        middle = {way: {key: round(statistics.median(one[key] for one in figures)) for key in LINES} for way, figures in found.items()}
        wrong = waits(middle)
        if number + 1 < rounds:
            continue
        # A machine that had other things to do is told from a fault by another round: the fault is there each time.
        if not wrong or number + 1 >= rounds + 2:
            break
        print(f"  {'; '.join(wrong)}: again, in case something else kept the machine busy", flush=True)
    print(f"\n  Median of {number + 1} round{'s' if number else ''}:\n")
    table(["", *ways], [[line, *(middle[way][key] for way in ways)] for key, line in LINES.items()])
    print()
    by_domain(domains)
    problems += wrong
    if problems:
        raise Wrong("; ".join(problems))


def waits(middle):
    """What is wrong with the waits and with what was wasted. No time is bounded by itself: the machine may have other work."""
    groups, plain, alone = (middle[way] for way in WAYS)
    wrong = []
    for key in ("p99", "longest"):  # how much longer the others make them; 0 for the perfect queue
        cost, plain_cost = groups[key] - alone[key], plain[key] - alone[key]
        if cost > plain_cost / 2:
            wrong.append(f"{LINES[key]}: by the others they wait {cost} ms longer, and as one task per record {plain_cost} ms: not even twice")
    if groups["down"] > plain["down"] / 2:
        wrong.append(f"{LINES['down']}: {groups['down']}, more than half of the {plain['down']} of the plain way")
    return wrong


def by_domain(found):
    """The same for each domain."""
    rows = []
    for domain in DOMAINS:
        groups, plain = ([round(statistics.median(figure)) for figure in zip(*found[way, domain])] for way in list(WAYS)[:2])
        rows.append([domain, *groups, *plain[2:]])
    ways = [f"{way}: {what}" for way in ("groups", "plain") for what in ("requests", "median wait, ms", "longest, ms")]
    table(["domain", "records", "dead", *ways], rows)
