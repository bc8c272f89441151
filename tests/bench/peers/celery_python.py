"""PORT JOBS add|work: sends so many tasks, or works until none is left; results are kept in the same server."""

import logging
import sys

from celery import Celery

url = f"redis://127.0.0.1:{sys.argv[1]}/0"
app = Celery("celery_python", broker=url, backend=url)
app.conf.broker_connection_retry_on_startup = True
left = int(sys.argv[2])


@app.task(name="job")
def job(payload):
    return 1


if sys.argv[3] == "add":
    for _ in range(left):
        job.delay("x" * 100)
else:
    from celery.signals import task_postrun
    from celery.worker import state

    @task_postrun.connect
    def count(**_):
        global left
        left -= 1
        if left == 0:
            state.should_stop = 0

    logging.disable(logging.CRITICAL)
    app.Worker(concurrency=1, pool="solo", loglevel="CRITICAL", without_gossip=True, without_mingle=True, quiet=True).start()
