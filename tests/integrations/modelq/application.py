"""A ModelQ application, as its users write them. The first lines are all that differs between ModelQ as it is and ModelQ on RQ."""

import os
import time

if os.getenv("ON", "rq") == "rq":
    from rq_modelq import ModelQ, Task
else:
    from modelq import ModelQ
    from modelq.app.tasks import Task

from modelq.app.middleware import Middleware
from modelq.exceptions import RetryTaskException
from pydantic import BaseModel, Field

FOLDER = os.getenv("FOLDER", ".")  # where tasks and hooks leave their marks


def note(name, line):
    """Adds a line to a file; gives how many it has then."""
    with open(os.path.join(FOLDER, name), "a+", encoding="utf-8") as file:
        file.write(f"{line}\n")
        file.flush()
        file.seek(0)
        return len(file.readlines())


def there(name):
    return os.path.exists(os.path.join(FOLDER, name))


def wait_for(name):
    while not there(name):
        time.sleep(0.01)


class Hooks(Middleware):
    def before_worker_boot(self):
        note("hooks", "before_worker_boot")
        if there("refuse-to-boot"):
            raise RuntimeError("no model here")

    def after_worker_boot(self):
        note("hooks", "after_worker_boot")

    def before_worker_shutdown(self):
        note("hooks", "before_worker_shutdown")

    def after_worker_shutdown(self):
        note("hooks", "after_worker_shutdown")

    def before_enqueue(self, *_args, **_kwargs):
        note("hooks", "before_enqueue")

    def after_enqueue(self, *_args, **_kwargs):
        note("hooks", "after_enqueue")

    def on_timeout(self, task, error):
        note("hooks", f"on_timeout {task.task_name}")

    def on_error(self, task, error):
        note("hooks", f"on_error {task.task_name}: {error}")


mq = ModelQ(
    host="127.0.0.1",
    port=int(os.getenv("PORT", "6379")),
    server_id=os.getenv("SERVER_ID"),
    delay_seconds=float(os.getenv("RETRY_AFTER", "0.2")),
    requeue_threshold=float(os.getenv("STALE_AFTER") or 0) or None,
    webhook_url=os.getenv("WEBHOOK"),
    task_ttl=int(os.getenv("TASK_TTL", "3600")),
    inactive_if_worker_boot_fail=True,
)
if os.getenv("HOOKS", "1") == "1":
    mq.middleware = Hooks()


@mq.task(timeout=10, retries=2)
def add(a, b):
    return a + b


@mq.task(stream=True)
def multiples(x, n, pause=0.0):
    for i in range(1, n + 1):
        yield f"{i} * {x} = {i * x}\n"
        time.sleep(pause)


@mq.task(stream=True)
def breaks_off(n):
    for i in range(n):
        yield {"chunk": i}
    raise ValueError("out of memory")


@mq.task(stream=True)
def gated(name, n):
    """Yields n chunks, then waits for a file before it yields the last."""
    run = note(f"{name}-runs", os.getpid())
    for i in range(n):
        yield f"{run}.{i} "
    note(f"{name}-reached", run)
    wait_for(f"{name}-go-{run}")
    yield f"{run}.end"


@mq.task(retries=2)
def flaky(name, failures):
    """Fails so many times."""
    tries = note(name, time.time())
    if tries <= failures:
        raise ValueError(f"try {tries} of {name}")
    return tries


@mq.task()
def fragile(name, failures):
    """Asks for a retry so many times."""
    tries = note(name, time.time())
    if tries <= failures:
        raise RetryTaskException(f"try {tries}")
    return tries


@mq.task(timeout=1)
def slow(name, seconds):
    time.sleep(seconds)
    note(name, mq.is_task_cancelled(None) if os.getenv("ON", "rq") == "rq" else "")
    return "late"


@mq.task()
def held(name):
    """Waits for a file."""
    note(f"{name}-runs", os.getpid())
    wait_for(f"{name}-go")
    return name


@mq.task()
def train(params: dict):
    task_id = params.get("_task_id")
    for epoch in range(params["epochs"]):
        mq.report_progress(task_id, (epoch + 1) / params["epochs"], f"epoch {epoch + 1}")
        note(f"{params['name']}-epochs", epoch)
        if "wait" in params:
            wait_for(f"{params['name']}-go-{epoch}")
    return {"epochs": params["epochs"]}


@mq.task()
def cancellable(params: dict):
    note(f"{params['name']}-runs", params["_task_id"])
    while not mq.is_task_cancelled(params["_task_id"]):
        time.sleep(0.02)
    note(f"{params['name']}-stopped", "")
    return {"status": "cancelled"}


@mq.task()
def echo(value):
    return value


@mq.task()
def nap(seconds):
    time.sleep(seconds)
    return {"slept": seconds}


@mq.task()
def leaves():
    raise SystemExit("bye")


class AddIn(BaseModel):
    a: int = Field(ge=0)
    b: int = Field(ge=0)


class AddOut(BaseModel):
    total: int


@mq.task(schema=AddIn, returns=AddOut)
def typed_add(payload: AddIn) -> AddOut:
    return AddOut(total=payload.a + payload.b)


@mq.task(schema=AddIn, returns=AddOut)
def typed_wrong(payload: AddIn):
    return {"sum": payload.a + payload.b}


if os.getenv("MORE") == "1":  # a process with a task that others do not have

    @mq.task()
    def rare(value):
        return f"rare {value}"

    @mq.task()
    def rare_held(name):
        note(f"{name}-runs", os.getpid())
        wait_for(f"{name}-go")
        return name
