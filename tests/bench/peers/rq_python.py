"""PORT JOBS add|work: enqueues so many jobs, or works until there are none."""

import logging
import sys

import redis
import rq


def job(payload):
    return 1


if __name__ == "__main__":
    connection = redis.Redis(port=int(sys.argv[1]))
    queue = rq.Queue(connection=connection)
    if sys.argv[3] == "add":
        for _ in range(int(sys.argv[2])):
            queue.enqueue("rq_python.job", "x" * 100)
    else:
        logging.disable(logging.CRITICAL)
        rq.SimpleWorker([queue], connection=connection).work(burst=True)
