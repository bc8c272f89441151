"""Measures the module beside what Redis has itself and beside other queues, in the same run and in turns.

Machines are noisy: only figures of one run may be compared, and only ratios of medians mean much. A full run writes
its tables into the README, between the two comments there.
"""

import argparse
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time

import disk
import flat
import lifecycle
import memory
import streaming
import throughput
import waiting
import worst
from peers import Peers
from rig import Failure, Server, say, targets

PARTS = {
    "lifecycle": lifecycle,
    "throughput": throughput,
    "memory": memory,
    "waiting": waiting,
    "streaming": streaming,
    "flat": flat,
    "worst": worst,
    "disk": disk,
}
# 10,000 workers, and what the server wants besides.
FILES = 12_100
README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
BEGIN, END = "<!-- begin of what make bench wrote -->", "<!-- end of what make bench wrote -->"


def machine():
    model = "an unknown processor"
    if os.path.exists("/proc/cpuinfo"):
        names = re.findall(r"model name\s*:\s*(.+)", pathlib.Path("/proc/cpuinfo").read_text())
        model = names[0] if names else model
    version = subprocess.run([Server.binary, "--version"], capture_output=True, text=True, check=True).stdout
    return f"Redis {re.search(r'v=([0-9.]+)', version)[1]}, {os.cpu_count()} cores ({model})"


def write_readme(text):
    old = README.read_text()
    before, found, rest = old.partition(BEGIN)
    _, found_end, after = rest.partition(END)
    if not (found and found_end):
        raise Failure(f"{README} does not have the two comments that the figures belong between:\n{BEGIN}\n{END}")
    README.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    print(f"\nwritten into {README.name}")


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all of them if none is given")
    parser.add_argument("--module", required=True)
    parser.add_argument("--server", default="redis-server")
    parser.add_argument("--quick", action="store_true", help="small and few: to see that it works, not to compare by")
    parser.add_argument("--rounds", type=int, help="fewer or more rounds than each part thinks right")
    parser.add_argument("--precedence", action="store_true",
                        help="servers and probes before whatever else this machine does (as root)")
    parser.add_argument("--only", default="", help="of the worst cases, those whose name has this in it")
    parser.add_argument("--without-peers", action="store_true", help="only what Redis has itself beside us")
    parser.add_argument("--no-write", action="store_true", help="leave the README alone")
    options = parser.parse_args()
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part {part}; there are {', '.join(PARTS)}")
    Server.binary, Server.module = options.server, os.path.abspath(options.module)
    if options.precedence:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < FILES:
        raise Failure(f"{FILES} open files are needed, and {hard} are allowed: ulimit -Hn {FILES}, as root")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    peers = Peers(not options.without_peers)
    texts = []
    began = time.monotonic()
    try:
        for name in options.parts or PARTS:
            for table in PARTS[name].measure(options, peers):
                say()
                print(f"\n{table}", flush=True)
                texts.append(str(table))
    except KeyboardInterrupt:
        say()
        print("\ninterrupted; the servers are stopped", file=sys.stderr)
        sys.exit(130)
    finally:
        Server.stop_all()
    print(f"\n{machine()}, {(time.monotonic() - began) / 60:.0f} minutes\n")
    for _, line in targets.lines:
        print(line)
    is_full = not (options.parts or options.quick or options.only or options.without_peers or options.rounds)
    if is_full and not options.no_write:
        write_readme("\n\n".join([f"{machine()}. Payloads of 100 bytes, medians of several rounds in turns.", *texts]))


if __name__ == "__main__":
    main()
