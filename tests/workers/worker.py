#!/usr/bin/env python3
"""Works on the jobs of a queue, one after the other, until SIGTERM. Needs redis-py: pip install redis"""
import os, redis, signal, socket, threading, time, uuid

queue, lease = os.getenv("QUEUE", "mail"), int(os.getenv("LEASE", 30000))           # ms
r = redis.Redis(os.getenv("REDIS_HOST", "localhost"), int(os.getenv("REDIS_PORT", 6379)),
                socket_timeout=10)                                                  # longer than BLOCK
me = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"                 # no other has this name, ever
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())


def work(payload, gone):
    """Yours; this one sleeps so many ms. An exception fails the job. Once `gone` is set, nobody wants the result."""
    end = time.monotonic() + int(payload) / 1000
    while time.monotonic() < end and not gone.wait(0.02):
        pass
    return f"slept {int(payload)} ms"


def call(*words):
    """Asks until there is an answer: all that a worker says may be said twice."""
    while True:
        try:
            return r.execute_command(*words)
        except (redis.ConnectionError, redis.TimeoutError):                         # LOADING is one of them
            if stop.wait(1):
                raise


def heartbeat(job, token, gone, finished):
    while not finished.wait(lease / 3000):
        try:
            if r.execute_command("RQ.EXTEND", queue, me, "LEASE", lease, job, token) != [b"ok"]:
                gone.set()                                                          # lost, or cancelled
        except redis.RedisError:
            pass                                                                    # the next beat may get through


def run(job, token, payload):
    if stop.is_set():                                                               # while it waited for a job
        return call("RQ.RELEASE", queue, job, token)
    gone, finished = threading.Event(), threading.Event()
    threading.Thread(target=heartbeat, args=(job, token, gone, finished), daemon=True).start()
    try:
        verdict = "RQ.ACK", queue, job, token, "RESULT", work(payload, gone)
    except Exception as error:
        verdict = "RQ.FAIL", queue, job, token, "ERROR", str(error)
    finished.set()
    call(*(("RQ.RELEASE", queue, job, token) if gone.is_set() else verdict))


while not stop.is_set():
    try:
        for job, token, payload, delivery in call("RQ.CLAIM", queue, me, "BLOCK", 5000, "LEASE", lease) or []:
            run(job, token, payload)
    except redis.RedisError as error:                                               # STALE: it is another's job now
        print(error)
        stop.wait(1)
