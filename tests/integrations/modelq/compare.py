"""ModelQ as it is and on RQ, with the same application and the same work: what it asks of the server."""

import contextlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from common import expect, expect_equal, since, table, until

HERE = os.path.dirname(os.path.abspath(__file__))
WORKERS = 4


class System:
    """A server, a process with workers, and a client."""

    def __init__(self, stage, kind):
        self.kind, self.server = kind, stage.server(module=kind == "rq")
        with contextlib.suppress(PermissionError):  # the time of a command goes on while another process has the processor
            os.setpriority(os.PRIO_PROCESS, self.server.process.pid, -15)
        environment = {"ON": kind, "PORT": str(self.server.port), "FOLDER": stage.folder, "HOOKS": "0", "STALE_AFTER": "", "TASK_TTL": "86400",
                       "SERVER_ID": "worker", "PYTHONPATH": os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")])}  # fmt: skip
        command = [sys.executable, "-m", "modelq.app.cli.main", "run-workers", "application:mq", "--workers", str(WORKERS), "--log-level", "ERROR"]
        stage.start(command, environment=environment, cwd=stage.folder, log=f"{kind}.log")
        self.client = subprocess.Popen([sys.executable, os.path.join(HERE, "load.py")], env={**os.environ, **environment}, cwd=stage.folder, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        stage.processes.append(self.client)
        expect_equal("the client", self.client.stdout.readline(), "ready\n")
        self.found = {}

    def tell(self, *words):
        self.client.stdin.write(" ".join(map(str, words)) + "\n")
        self.client.stdin.flush()
        answer = self.client.stdout.readline()
        expect(f"{self.kind}: the client answers to {words}", answer)
        return json.loads(answer)

    def is_idle(self):
        if self.kind == "rq":
            stats = self.server.map("RQ.STATS", "modelq:echo")
            return stats[b"ready"] == stats[b"active"] == stats[b"delayed"] == 0
        return self.server.call("LLEN", "ml_tasks") == self.server.call("SCARD", "processing_tasks") == self.server.call("LLEN", "delayed_tasks") == 0

    def settle(self):
        until(f"{self.kind}: all is done", self.is_idle, patience=900)

    def cpu(self):
        info = self.server.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def measure(self, name, call):
        """What the server is asked for during a call, and what that takes."""
        spent, output, cpu = self.server.spent(), self.server.net_output(), self.cpu()
        self.found[f"{name} answer"] = call()
        cpu, output, spent = self.cpu() - cpu, self.server.net_output() - output, since(spent, self.server.spent())
        self.found[name] = {
            "commands": sum(calls for calls, _ in spent.values()),
            "event loop": sum(usec for _, usec in spent.values()),
            "output": output,
            "cpu": cpu,
            "names": spent,
            **{command: spent.get(command, (0, 0))[0] for command in ("scan", "get")},
        }

    def run(self, retained, scale, idle):
        self.tell("fill", retained)
        self.settle()
        self.found["keys"] = self.server.call("DBSIZE")
        self.found["memory"] = int(self.server.info("memory")["used_memory"])
        self.measure("work", lambda: self.tell("work", scale))
        self.measure("idle", lambda: time.sleep(idle))
        self.measure("look", lambda: self.tell("look"))
        self.measure("prune", lambda: self.tell("prune"))
        self.measure("large", lambda: self.tell("large"))
        return self.found


def compare(stage, full):
    retained, scale, idle = (20_000, 5, 60) if full else (500, 1, 5)
    print(f"  {retained:,} retained tasks, {WORKERS} workers, {60 * scale} tasks of all kinds, {idle} s idle")
    systems = [System(stage, kind) for kind in ("itself", "rq")]
    every = map if full else ThreadPoolExecutor(2).map  # in small both at once: it is not about times then
    theirs, ours = every(lambda system: system.run(retained, scale, idle), systems)
    tasks = ours["work answer"]
    expect_equal("the same work", theirs["work answer"], tasks)
    expect_equal("the same tasks are retained", (theirs["look answer"], theirs["look answer"][2]), (ours["look answer"], retained + tasks))

    def row(what, name, key, per=1, digits=0):
        return [what, *(f"{found[name][key] / per:,.{digits}f}" for found in (theirs, ours))]

    def group(what, name):
        return [row(f"{what}: commands", name, "commands"), row("- of which GET", name, "get"), row("- of which SCAN", name, "scan"),
                row("- event loop, ms", name, "event loop", 1000, 1), row("- sent by the server, kB", name, "output", 1000)]  # fmt: skip

    rows = [
        row("commands per task", "work", "commands", tasks, 1),
        row("- of which GET", "work", "get", tasks, 1),
        row("- event loop, µs per task", "work", "event loop", tasks),
        row("- processor time of the server, µs per task", "work", "cpu", tasks / 1e6),
        row("- sent by the server, kB per task", "work", "output", tasks * 1000),
        [f"keys, {retained:,} tasks retained", f"{theirs['keys']:,}", f"{ours['keys']:,}"],
        ["- memory, MB", *(f"{found['memory'] / 1e6:,.1f}" for found in (theirs, ours))],
        *group(f"{idle} s idle", "idle"),
        *group("get_failed_tasks, get_completed_tasks, get_task_stats", "look"),
        *group("a task of 7 MB that returns 7 MB", "large"),
        *group("prune_old_task_results", "prune"),
    ]
    table(["", "ModelQ 1.0.19", "on RQ"], [[cell if first else str(cell) for first, cell in enumerate(line)] for line in rows])

    for name in ("work", "idle", "look", "prune", "large"):
        names = set(ours[name]["names"])
        expect(f"on RQ, {name}: nothing but commands of the module, not {names}", all(command.lower().startswith("rq.") for command in names))
        expect(f"on RQ, {name}: fewer commands", ours[name]["commands"] <= theirs[name]["commands"])
    for name in ("work", "look", "large"):
        expect(f"on RQ, {name}: less is sent", ours[name]["output"] < theirs[name]["output"])
    expect("on RQ: a key per kind of task and one for the workers at most", ours["keys"] < 20 < retained <= theirs["keys"])
