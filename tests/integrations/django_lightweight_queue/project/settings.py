"""Settings of the project. The RQ_TRIAL_… variables come from the trials."""

import json
import os
import time

SECRET_KEY = "for a trial"
INSTALLED_APPS = ["django_lightweight_queue", "shop"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("RQ_TRIAL_DATABASE", ":memory:"),
        "OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ, TIME_ZONE = True, "UTC"

LIGHTWEIGHT_QUEUE_BACKEND = os.environ.get("RQ_TRIAL_BACKEND", "rq_backend.RqBackend")
LIGHTWEIGHT_QUEUE_REDIS_PORT = int(os.environ.get("RQ_TRIAL_PORT", "6379"))
LIGHTWEIGHT_QUEUE_WORKERS = json.loads(os.environ.get("RQ_TRIAL_WORKERS", "{}"))
LIGHTWEIGHT_QUEUE_MIDDLEWARE = ["django_lightweight_queue.middleware.logging.LoggingMiddleware", "rq_backend.RetryMiddleware"]
LIGHTWEIGHT_QUEUE_ENABLE_PROMETHEUS = "RQ_TRIAL_PROMETHEUS" in os.environ
LIGHTWEIGHT_QUEUE_PROMETHEUS_START_PORT = int(os.environ.get("RQ_TRIAL_PROMETHEUS", "9300"))
RQ_LEASE = float(os.environ.get("RQ_TRIAL_LEASE", "60"))
RQ_UNIQUE_QUEUES = ["newsletter"]


class Clocked:
    """What the runner says, with the time: how long its start-up takes can be read from that."""

    def log(self, _level, text, *_args, **_more):
        with open(os.environ["RQ_TRIAL_CLOCK"], "a", encoding="utf-8") as file:
            file.write(f"{json.dumps([os.getpid(), time.time(), text])}\n")

    def debug(self, text, *args, **more):
        self.log(0, text)

    info = warning = error = exception = debug


if "RQ_TRIAL_CLOCK" in os.environ:
    LIGHTWEIGHT_QUEUE_LOGGER_FACTORY = lambda _name: Clocked()  # noqa: E731
