"""Plays the endpoints: an HTTP server on loopback, each path of which has a temper of its own."""

import http.server
import json
import math
import threading
import time
import urllib.parse


class Endpoint:
    """One endpoint: how it behaves, and what it saw. Payloads are JSON with a `number`, and what else the temper looks at.

    fast, slow         takes everything, after so long
    refusing           while it is down, nobody listens at its port
    hanging            while it is down, it takes requests and never answers
    503                while it is down, it says so
    500                to everything
    429                takes `burst` requests, then wants `rest` seconds of rest
    400 to some        rejects payloads that are `odd`
    502 to some        a proxy before it fails for payloads that are `odd`, always
    """

    def __init__(self, domain, name, temper, takes=0.0, down=None, burst=4, rest=1, now=time.monotonic):
        self.domain, self.name, self.temper, self.takes, self.down = domain, name, temper, takes, down
        self.burst, self.rest, self.now = burst, rest, now
        self.lock = threading.Lock()
        self.url = None
        self.start = math.inf  # the instant from which `down` (from, to) counts
        self.active = self.most_active = 0
        self.burst_left, self.rests_until = burst, 0.0
        self.method, self.headers = None, {}  # of the last request
        self.seen = []  # (delivery, number, arrived, status); None: never answered
        self.gate = threading.Event()  # closed, it lets requests in and none out
        self.gate.set()

    def is_down(self, now):
        return self.down is not None and self.down[0] <= now - self.start < self.down[1]

    def answer(self, delivery, payload):
        """Status and headers, after as long as it takes; None: none."""
        arrived = self.now()
        with self.lock:
            self.active += 1
            self.most_active = max(self.most_active, self.active)
            status, headers = self.decide(arrived, payload)
            self.seen.append((delivery, payload["number"], arrived, status))
        self.gate.wait()
        if status in (200, 400, 500):
            time.sleep(self.takes)
        with self.lock:
            self.active -= 1  # before the answer is on its way: what it sets free may be here before it is sent
        return status, headers

    def decide(self, now, payload):
        if self.is_down(now):
            return (503 if self.temper == "503" else None), {}
        if self.temper == "500":
            return 500, {}
        if self.temper == "400 to some" and payload.get("odd"):
            return 400, {}
        if self.temper == "502 to some" and payload.get("odd"):
            return 502, {}
        if self.temper == "429":
            if now < self.rests_until:
                return 429, {"Retry-After": math.ceil(self.rests_until - now)}
            if self.burst_left == 0:
                self.burst_left, self.rests_until = self.burst, now + self.rest
                return 429, {"Retry-After": self.rest}
            self.burst_left -= 1
        return 200, {}

    def answered(self):
        """What it saw while it was up."""
        return [request for request in self.seen if request[3] not in (None, 503)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer in one packet

    def do_POST(self):
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        endpoint = self.server.endpoints[self.path]
        endpoint.method, endpoint.headers = self.command, dict(self.headers)
        status, headers = endpoint.answer(self.headers["X-Delivery"], payload)
        if status is None:
            self.server.closing.wait()
            self.close_connection = True
            return
        body = b'{"status": %d}' % status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_POST

    def log_message(self, *_args):
        pass


class Listener(http.server.ThreadingHTTPServer):
    """An HTTP server for some endpoints. Until it is opened its port is taken, but connections are refused."""

    request_queue_size = 64
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = False  # or the same port could be given to two that do not listen yet

    def __init__(self, *endpoints):
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.server_bind()
        self.endpoints, self.thread, self.closing = {}, None, threading.Event()
        for endpoint in endpoints:
            path = "/" + urllib.parse.quote(f"{endpoint.domain}/{endpoint.name}")
            self.endpoints[path] = endpoint
            endpoint.url = f"http://127.0.0.1:{self.server_port}{path}"

    def open(self):
        self.server_activate()
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.closing.set()
        if self.thread:
            self.shutdown()
        self.server_close()

    def handle_error(self, _request, _address):
        pass  # a worker was killed, or gave up, in mid-request
