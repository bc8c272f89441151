#!/usr/bin/env python3
"""Forwards records over HTTP to the endpoints of many domains, by a job queue in Redis. Needs: pip install redis urllib3 (Python 3.10)

A record is a job: its payload is the body to be sent, its group the endpoint, its tenant the domain that the endpoint
belongs to. Its id is `domain/endpoint/key`, so a key that was registered already is not registered again. Where an
endpoint is, and what it wants to see, is in a hash beside the queue, so a new address holds for records that wait, too.

What a worker makes of an answer:

    2xx                        RQ.ACK                   delivered; status and beginning of the answer are kept
    429                        RQ.FAIL … THROTTLED ms   the endpoint rests so long, then takes less at once; no attempt is used
    502, 503, 504, no answer   RQ.FAIL … UNAVAILABLE    the endpoint backs off, one probe at a time; no attempt is used
    other 4xx, but RETRIED     RQ.FAIL … DEAD           this payload will never be accepted
    anything else              RQ.FAIL                  an attempt is used; again after the back-off of the record

`forwarder.py --help` lists the commands; docs/integrations/repeaters.md has the whole story.
"""

import argparse
import email.utils
import json
import os
import re
import signal
import socket
import sys
import threading
import time
import urllib.parse
import uuid

import redis
import urllib3

UNAVAILABLE = {502, 503, 504}
RETRIED = {404, 408, 409, 423, 424, 425}  # as a server or a proxy also says for a while; other 4xx are for ever
STATES = ("ready", "delayed", "active", "done", "dead", "cancelled")
WAITING = ("ready", "delayed")
BLOCK = 2000  # ms that a worker waits for a record, and so about the longest that SIGTERM takes when there is none
KEPT = 1000  # bytes of an answer that are kept
TURNS = 2  # a record that got no answer so many times steps aside for a while: maybe it is its own fault
UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(text, speed=1.0):
    """'90s', '1h', '7d' as milliseconds; with a speed, so many times less."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: a number and one of {', '.join(UNITS)}")
    return max(1, round(float(found[1]) * UNITS[found[2]] / speed))


def rate(text):
    """'10/1s' as the words for 10 per second."""
    found = re.fullmatch(r"(\d+)/(.+)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: a number per time, as 10/1s")
    return ["RATE", found[1], milliseconds(found[2])]


def header(text):
    name, colon, value = text.partition(": ")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text!r}: a name, a colon and a value")
    return name, value


def text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def as_map(reply):
    return None if reply is None else {text(key): value for key, value in zip(reply[::2], reply[1::2])}


class Record:
    """A record that a worker holds."""

    def __init__(self, job):
        self.id, self.token, self.payload = text(job["id"]), text(job["token"]), job["payload"]
        parts = self.id.split("/")  # another id is of a job that is none of ours: it has no endpoint
        self.domain, self.endpoint, self.key = map(urllib.parse.unquote, parts if len(parts) == 3 else ("", "", self.id))
        self.deliveries = job["deliveries"]  # this one included
        self.age = job["claimed"] - job["enqueued"]  # ms


class Forwarder:
    """What programs need: to register records, and to look after them."""

    def __init__(self, url="redis://localhost:6379", queue="forward"):
        # RESP2: a map is a list. The time-out is longer than any call waits.
        self.redis = redis.Redis.from_url(url, protocol=2, socket_timeout=BLOCK / 1000 + 10)
        self.queue = queue

    def call(self, command, *words):
        return self.redis.execute_command("RQ." + command, self.queue, *words)

    def call_map(self, command, *words):
        return as_map(self.call(command, *words))

    def pages(self, command, *words):
        """What a listing lists, page by page."""
        cursor = "0"
        while True:
            cursor, page = self.call(command, *words, "CURSOR", cursor, "COUNT", 1000)
            yield [as_map(entry) for entry in page]
            if text(cursor) == "0":
                return

    @staticmethod
    def record_id(domain, endpoint, key):
        return "/".join(urllib.parse.quote(part, safe="") for part in (domain, endpoint, key))

    @staticmethod
    def where(domain=None, endpoint=None):
        """The words for one endpoint, for a domain, or for all."""
        return [*(["TENANT", domain] if domain is not None else []), *(["GROUP", endpoint] if endpoint is not None else [])]

    # Producers

    def register(self, domain, endpoint, payload, key=None):
        """Gives the id of the record. The same key may be registered again: nothing is sent twice for it."""
        return self.register_all([(domain, endpoint, payload, key)])[0]

    def register_all(self, records):
        """The same for many (domain, endpoint, payload, key or None), with one trip to the server."""
        pipeline = self.redis.pipeline(transaction=False)
        for domain, endpoint, payload, key in records:
            job = self.record_id(domain, endpoint, key or uuid.uuid4().hex)
            pipeline.execute_command("RQ.ENQUEUE", self.queue, payload, "ID", job, "IFNEW", *self.place(domain, endpoint))
        return [text(job) for job in pipeline.execute()]

    def place(self, domain, endpoint):
        """Where the queue puts a record: the whole point."""
        return self.where(domain, endpoint)

    # Endpoints and domains

    def addresses(self):
        return f"{self.queue}:endpoints"

    def set_endpoint(self, domain, endpoint, url, method="POST", headers=None, timeout=None, ordered=False, limits=()):
        address = {"url": url, "method": method, "headers": headers or {}, "timeout": timeout, "ordered": ordered}
        self.redis.hset(self.addresses(), self.record_id(domain, endpoint, ""), json.dumps(address))
        self.call("GROUP.SET", endpoint, "TENANT", domain, "ORDERED", "yes" if ordered else "default", *limits)

    def endpoint(self, domain, endpoint):
        found = self.redis.hget(self.addresses(), self.record_id(domain, endpoint, ""))
        return json.loads(found) if found is not None else None

    def remove_endpoint(self, domain, endpoint):
        """Its records that wait are cancelled. One that comes later is dead at once."""
        self.redis.hdel(self.addresses(), self.record_id(domain, endpoint, ""))
        return self.cancel_all(domain, endpoint)

    # Operators

    def records(self, state, domain=None, endpoint=None):
        yield from self.pages("LIST", state, *self.where(domain, endpoint))

    def cancel_all(self, domain=None, endpoint=None):
        count = 0
        for state in WAITING:
            for page in self.records(state, domain, endpoint):
                states = self.call("CANCEL", *[job["id"] for job in page]) if page else []
                count += sum(1 for now in states if now is not None)
        return count

    def retry_all(self, domain=None, endpoint=None):
        """Gives all dead records a new life."""
        count = 0
        for page in self.records("dead", domain, endpoint):
            states = self.call("REDRIVE", *[job["id"] for job in page]) if page else []
            count += sum(1 for now in states if now == b"ready")
        return count

    def retry(self, record):
        """Sends one record now, whatever became of it, with all its attempts. Gives its state, None if it is unknown."""
        job = self.call_map("JOB", record)
        if job is None:
            return None
        if job["state"] == b"dead":
            return text(self.call("REDRIVE", record)[0])
        if job["state"] == b"delayed":
            return text(self.call("RESCHEDULE", record, "DELAY", 0))
        if job["state"] in (b"done", b"cancelled"):
            place = [word for name in ("tenant", "group") if job[name] is not None for word in (name, job[name])]
            self.call("ENQUEUE", job["payload"], "ID", record, "REPLACE", *place)
            return "ready"
        return text(job["state"])

    def report(self, domain=None):
        """(domains, totals): per domain its map with its `endpoints`, and the figures of the queue. One page of the groups
        and of the tenants after the other: no record is looked at, nor the keyspace."""
        domains = {}
        for page in self.pages("TENANT.LIST"):
            for tenant in page:
                if domain in (None, text(tenant["tenant"])) and tenant["tenant"]:
                    domains[text(tenant["tenant"])] = {**tenant, "endpoints": {}}
        for page in self.pages("GROUP.LIST", *self.where(domain)):
            for group in page:
                if group["group"] is not None and text(group["tenant"]) in domains:
                    domains[text(group["tenant"])]["endpoints"][text(group["group"])] = group
        totals = self.call_map("STATS")
        for name in ("wait-time", "run-time", "rates", "groups", "totals"):
            totals[name] = as_map(totals[name])
        return domains, totals


class Worker:
    """A process that forwards: `places` records at once, each in a thread, under one name."""

    def __init__(self, forwarder, places=8, lease=30_000, timeout=20.0, give_up=7 * UNITS["d"], aside=6 * UNITS["h"], rest=60_000, log=print):
        self.forwarder, self.lease, self.timeout, self.log = forwarder, lease, timeout, log
        self.give_up, self.aside, self.rest = give_up, aside, rest  # ms
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.places = places
        self.http = urllib3.PoolManager(num_pools=100, maxsize=places, retries=False)
        self.stop = threading.Event()
        self.held = {}  # token: record
        self.lock = threading.Lock()

    def run(self):
        """Until `stop` is set; what is in work then is ended, what comes too late is given back."""
        threads = [threading.Thread(target=self.work) for _ in range(self.places)]
        threading.Thread(target=self.heartbeat, daemon=True).start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work(self):
        while not self.stop.is_set():
            try:
                for job in self.forwarder.call("CLAIM", self.name, "BLOCK", BLOCK, "LEASE", self.lease, "FULL") or []:
                    self.handle(Record(as_map(job)))
            except redis.RedisError as error:  # the server is away, or the record is another's by now
                self.log(f"{type(error).__name__}: {error}")
                self.stop.wait(1)

    def handle(self, record):
        if self.stop.is_set():
            self.say("RELEASE", record)
            return
        with self.lock:
            self.held[record.token] = record
        try:
            address = self.forwarder.endpoint(record.domain, record.endpoint)
            self.report(record, address, *self.forward(record, address))
        except redis.RedisError:
            raise
        except Exception as error:  # as a header that cannot be sent: no reason to lose a place
            self.say("FAIL", record, "ERROR", f"{type(error).__name__}: {error}")
        finally:
            with self.lock:
                del self.held[record.token]

    def heartbeat(self):
        """Keeps what is in work, three times a lease. What was cancelled or lost meanwhile ends with its request."""
        while True:
            time.sleep(self.lease / 3000)
            with self.lock:
                held = [word for record in self.held.values() for word in (record.id, record.token)]
            try:
                if held:
                    self.forwarder.call("EXTEND", self.name, "LEASE", self.lease, *held)
            except redis.RedisError:
                pass  # the next beat may get through

    def forward(self, record, address):
        """Sends it. Gives the status, what is to be known of the answer, and its Retry-After."""
        if address is None:
            return 410, "no such endpoint", None
        headers = {"Content-Type": "application/json", **address["headers"], "Idempotency-Key": record.id, "X-Delivery": record.token}
        timeout = address["timeout"] or self.timeout
        try:
            answer = self.http.request(
                address["method"], address["url"], body=record.payload, headers=headers, timeout=timeout, redirect=False,
                preload_content=False,
            )  # fmt: skip
            body = answer.read(KEPT + 1)
            if len(body) > KEPT:
                answer.close()  # rather than read the rest
            else:
                answer.release_conn()
        except (urllib3.exceptions.LocationValueError, UnicodeError) as error:
            return 400, f"the address is wrong: {error}", None
        except urllib3.exceptions.HTTPError as error:
            return None, f"{type(error).__name__}: {error}", None
        return answer.status, f"{answer.status} {text(body[:KEPT])}".strip(), answer.headers.get("Retry-After")

    def report(self, record, address, status, note, retry_after):
        """Tells the queue how it went."""
        if status is None or status in UNAVAILABLE:
            if record.age >= self.give_up:
                self.say("FAIL", record, "ERROR", f"given up, the last answer: {note}", "DEAD")
            else:
                self.say("FAIL", record, "ERROR", note, "UNAVAILABLE")
                if record.deliveries % TURNS == 0 and not address["ordered"]:
                    self.step_aside(record)
        elif status == 429:
            self.say("FAIL", record, "ERROR", note, "THROTTLED", self.rest_of(retry_after))
        elif 200 <= status < 300:
            self.say("ACK", record, "RESULT", note)
        elif 400 <= status < 500 and status not in RETRIED:
            self.say("FAIL", record, "ERROR", note, "DEAD")
        else:
            self.say("FAIL", record, "ERROR", note)

    def say(self, command, record, *words):
        """Asks until there is an answer: all that a worker says may be said twice."""
        while True:
            try:
                return self.forwarder.call(command, record.id, record.token, *words)
            except (redis.ConnectionError, redis.TimeoutError):
                if self.stop.wait(1):
                    raise

    def step_aside(self, record):
        """It waits as long again as it has waited so far, so that another one is the next probe. If the endpoint is down for all,
        that changes little; if it is down for this payload only, the others get past it."""
        try:
            self.forwarder.call("RESCHEDULE", record.id, "DELAY", max(1, min(record.age, self.aside)))
        except redis.ResponseError:
            pass  # it does not wait any more

    def rest_of(self, retry_after):
        """Ms of a Retry-After in seconds or as a date; a day at most."""
        try:
            seconds = float(retry_after)
        except (TypeError, ValueError):
            try:
                seconds = email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time()
            except (TypeError, ValueError):
                return self.rest
        return round(1000 * min(86_400.0, max(1.0, seconds)))


# The command line


def setup(forwarder, options):
    keep = options.keep
    forwarder.call(
        "QUEUE.SET", "ATTEMPTS", options.attempts, "BACKOFF", options.retry_wait, options.retry_max,
        "GROUP-BACKOFF", options.offline_wait, options.offline_max, "GROUP-CONCURRENCY", options.at_once,
        "TTL", keep, "RESULTTTL", keep, "DEADTTL", keep, "KEEPDEAD", "none",
    )  # fmt: skip


def limits_of(options):
    return (["CONCURRENCY", options.at_once] if options.at_once is not None else []) + (options.rate or [])


def endpoint(forwarder, options):
    limits = limits_of(options)
    if options.offline_wait:
        limits += ["BACKOFF", options.offline_wait, options.offline_max or max(options.offline_wait, milliseconds("6h", options.speed))]
    forwarder.set_endpoint(
        options.domain, options.endpoint, options.url, options.method, dict(options.header), options.timeout, options.ordered, limits
    )


def domain(forwarder, options):
    limits = limits_of(options) + (["WEIGHT", options.weight] if options.weight else [])
    forwarder.call("TENANT.SET", options.domain, *limits)


def remove(forwarder, options):
    print(f"{forwarder.remove_endpoint(options.domain, options.endpoint)} records cancelled")


def register(forwarder, options):
    if forwarder.endpoint(options.domain, options.endpoint) is None:
        sys.exit(f"{options.domain} has no endpoint {options.endpoint}")
    with open(options.file, "rb") if options.file != "-" else sys.stdin.buffer as file:
        print(forwarder.register(options.domain, options.endpoint, file.read(), options.key))


def work(forwarder, options):
    worker = Worker(forwarder, options.places, options.lease, options.timeout, options.give_up, milliseconds("6h", options.speed))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop.set())
    worker.run()


def since(ms):
    """So many milliseconds, for people."""
    if ms is None:
        return "-"
    for unit in ("d", "h", "m", "s"):
        if ms >= 2 * UNITS[unit]:
            return f"{ms / UNITS[unit]:.1f} {unit}"
    return f"{ms:,} ms"


def held(entry, now):
    """Why nothing of it is sent, by whom, and for how long."""
    if entry["held"] is None:
        return "sends"
    by = f" ({text(entry['held-by'])})" if entry["held-by"] is not None else ""
    return text(entry["held"]) + by + (f", {since(max(0, entry['held-until'] - now))} more" if entry["held-until"] is not None else "")


def report(forwarder, options):
    domains, totals = forwarder.report(options.domain)
    if options.json:
        print(json.dumps({"domains": domains, "totals": totals}, default=text))
        return
    seconds, _micro = forwarder.redis.time()
    form = "{:24} {:>7} {:>7} {:>6} {:>7} {:>6} {:>9}  {:>9} {:>7}  {}"
    print(form.format("domain, endpoint", "waiting", "retried", "active", "sent", "dead", "cancelled", "oldest", "at once", "state"))
    for name, tenant in domains.items():
        groups = tenant["endpoints"].values()
        ages = [group["oldest-ready-age"] for group in groups if group["oldest-ready-age"] is not None]
        sums = [sum(group[state] for group in groups) for state in STATES]
        print(form.format(name, *sums, since(max(ages, default=None)), text(tenant["concurrency"]), held(tenant, seconds * 1000)))
        for endpoint, group in tenant["endpoints"].items():
            counts = [group[state] for state in STATES]
            line = [since(group["oldest-ready-age"]), text(group["concurrency"]), held(group, seconds * 1000)]
            print(form.format("  " + endpoint, *counts, *line))
    for name, what in (("wait-time", "waits of the last minutes"), ("run-time", "requests of the last minutes")):
        times = totals[name]
        print(f"{what}: " + ", ".join(f"{key} {since(times[key])}" for key in ("p50", "p90", "p99", "max")) + f" of {times['count']}")
    print(f"workers: {totals['live-workers']}, with free places: {totals['waiting-workers']}; the whole: {text(totals['held']) or 'sends'}")


def records(forwarder, options):
    for state in [options.state] if options.state else STATES:
        for page in forwarder.records(state, options.domain, options.endpoint):
            for job in page:
                remark = text(job.get("error") or b"").split("\n")[0][:80]
                print(f"{state:9} {text(job['id'])}  attempts {job['attempts']}, sent {job['deliveries']} times  {remark}".rstrip())


def show(forwarder, options):
    job = forwarder.call_map("JOB", options.record)
    if job is None:
        sys.exit(f"no record {options.record}")
    for key, value in job.items():
        if value is not None:
            print(f"{key}: {as_map(value) if key == 'options' else text(value)}")


def pause(forwarder, options):
    words = ["FOR", options.time] if options.time else []
    forwarder.call("PAUSE", *forwarder.where(options.domain, options.endpoint), *words)


def resume(forwarder, options):
    forwarder.call("RESUME", *forwarder.where(options.domain, options.endpoint))


def retry(forwarder, options):
    if options.record:
        for record in options.record:
            print(f"{record}: {forwarder.retry(record) or 'unknown'}")
    else:
        print(f"{forwarder.retry_all(options.domain, options.endpoint)} records are sent again")


def cancel(forwarder, options):
    if options.record:
        for record, state in zip(options.record, forwarder.call("CANCEL", *options.record)):
            print(f"{record}: {text(state) or 'unknown'}")
    else:
        print(f"{forwarder.cancel_all(options.domain, options.endpoint)} records cancelled")


def parser(speed):
    def time_of(value):
        return milliseconds(value, speed)

    top = argparse.ArgumentParser(description="Forward records over HTTP. Times are written as 500ms, 20s, 5m, 1h, 7d.")
    top.add_argument("--redis", default=os.getenv("FORWARDER_REDIS", "redis://localhost:6379"), help="URL of the server")
    top.add_argument("--queue", default=os.getenv("FORWARDER_QUEUE", "forward"), help="name of the queue")
    top.set_defaults(speed=speed)
    commands = top.add_subparsers(dest="command", required=True)

    def add(name, function, help, where=None):
        """where: whether domain and endpoint are wanted, or may be given."""
        command = commands.add_parser(name, help=help, description=help)
        command.set_defaults(function=function)
        if where == "wanted":
            command.add_argument("domain")
            command.add_argument("endpoint")
        elif where == "given":
            command.add_argument("--domain")
            command.add_argument("--endpoint", help="with --domain")
        return command

    command = add("setup", setup, "how the queue retries and what it keeps; once, or to change it")
    command.add_argument("--attempts", type=int, default=8, help="answers other than 2xx, 4xx and 'unavailable' until a record is dead")
    command.add_argument("--retry-wait", type=time_of, default="1h", help="of a record, doubling")
    command.add_argument("--retry-max", type=time_of, default="7d")
    command.add_argument("--offline-wait", type=time_of, default="5m", help="of an endpoint that is offline, doubling")
    command.add_argument("--offline-max", type=time_of, default="6h")
    command.add_argument("--at-once", type=int, default=7, help="requests to one endpoint")
    command.add_argument("--keep", type=time_of, default="42d", help="how long records stay that were sent, died, or were cancelled")

    command = add("endpoint", endpoint, "where an endpoint is and what it can take", "wanted")
    command.add_argument("url")
    command.add_argument("--method", default="POST")
    command.add_argument("--header", action="append", default=[], type=header, metavar="'NAME: VALUE'", help="as often as you like")
    command.add_argument("--timeout", type=float, help="seconds for an answer")
    command.add_argument("--at-once", type=int, help="requests")
    command.add_argument("--rate", type=rate, help="requests per time, as 10/1s")
    command.add_argument("--ordered", action="store_true", help="one at a time, as they were registered")
    command.add_argument("--offline-wait", type=time_of)
    command.add_argument("--offline-max", type=time_of)

    command = add("domain", domain, "what the endpoints of a domain may have together")
    command.add_argument("domain")
    command.add_argument("--at-once", type=int, help="requests")
    command.add_argument("--rate", type=rate, help="requests per time, as 100/1m")
    command.add_argument("--weight", type=int, help="its share beside other domains")

    add("remove", remove, "forget an endpoint and cancel what waits for it", "wanted")

    command = add("register", register, "register a record; prints its id", "wanted")
    command.add_argument("file", nargs="?", default="-", help="the payload; - is the standard input")
    command.add_argument("--key", help="what is registered under this key already is not registered again")

    command = add("worker", work, "forward until SIGTERM")
    command.add_argument("--places", type=int, default=8, help="requests at once")
    command.add_argument("--lease", type=milliseconds, default="30s", help="after so long a killed worker's records are another's")
    command.add_argument("--timeout", type=float, default=20.0, help="seconds for an answer, if the endpoint says nothing else")
    command.add_argument("--give-up", type=time_of, default="7d", help="a record that no one answered for so long is dead")

    command = add("report", report, "domains and endpoints: what waits, how long, and why")
    command.add_argument("--domain")
    command.add_argument("--json", action="store_true")

    command = add("records", records, "list records", "given")
    command.add_argument("--state", choices=STATES)
    command = add("show", show, "all about a record")
    command.add_argument("record")
    command = add("pause", pause, "stop sending: of an endpoint, a domain, or all", "given")
    command.add_argument("--for", dest="time", type=time_of)
    add("resume", resume, "go on; of an endpoint, also if it is offline", "given")
    command = add("retry", retry, "send records now, whatever became of them; without any, all dead ones", "given")
    command.add_argument("record", nargs="*")
    command = add("cancel", cancel, "cancel records; without any, all that wait", "given")
    command.add_argument("record", nargs="*")
    return top


def main():
    speed = float(os.getenv("FORWARDER_SPEED", "1"))  # back-offs and the like are so many times shorter, leases not: to try it out
    commands = parser(speed)
    options = commands.parse_args()
    if getattr(options, "endpoint", None) is not None and getattr(options, "domain", None) is None:
        commands.error("--endpoint needs --domain")
    forwarder = Forwarder(options.redis, options.queue)
    try:
        options.function(forwarder, options)
    except redis.RedisError as error:
        sys.exit(f"{options.command}: {error}")
    except BrokenPipeError:
        os._exit(1)  # the reader of the output went away


if __name__ == "__main__":
    main()
