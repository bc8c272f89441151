"""The whole life of a job: enqueue, claim, acknowledge."""

import time

from rig import BATCH, KEEPS_MEMORY, PAYLOAD, Server, Table, in_turns, median, say, targets


def lists(client, jobs, depth):
    """A list per queue and one per worker: no lease, no retry, no result."""
    for start in range(0, jobs, depth):
        client.many([("LPUSH", "list", PAYLOAD + b"%d" % (start + n)) for n in range(depth)])
    for _ in range(0, jobs, depth):
        taken = client.many([("LMOVE", "list", "taken", "RIGHT", "LEFT")] * depth)
        client.many([("LREM", "taken", -1, job) for job in taken])


def streams(client, jobs, depth):
    """A consumer group."""
    client.call("XGROUP", "CREATE", "stream", "group", "$", "MKSTREAM")
    for _ in range(0, jobs, depth):
        client.many([("XADD", "stream", "*", "p", PAYLOAD)] * depth)
    read = ("XREADGROUP", "GROUP", "group", "worker", "COUNT", 1, "STREAMS", "stream", ">")
    for _ in range(0, jobs, depth):
        ids = [reply[0][1][0][0] for reply in client.many([read] * depth)]
        client.many([word for id in ids for word in (("XACK", "stream", "group", id), ("XDEL", "stream", id))])


def ours(client, jobs, depth):
    """This module."""
    for _ in range(0, jobs, depth):
        client.many([("RQ.ENQUEUE", "queue", PAYLOAD)] * depth)
    for _ in range(0, jobs, depth):
        claimed = client.many([("RQ.CLAIM", "queue", "worker")] * depth)
        client.many([("RQ.ACK", "queue", job[0], job[1]) for [job] in claimed])


def floor(client, jobs, depth):
    """The module of floor.rs, which keeps nothing."""
    client.call("SET", "key", "something")
    for _ in range(0, jobs, depth):
        client.many([("FLOOR.ENQUEUE", "key", PAYLOAD)] * depth)
    for _ in range(0, jobs, depth):
        claimed = client.many([("FLOOR.CLAIM", "key", "worker")] * depth)
        client.many([("FLOOR.ACK", "key", job[0], job[1]) for [job] in claimed])


# name: how, and the commands that count
CYCLES = {
    "RQ.ENQUEUE + RQ.CLAIM + RQ.ACK": (ours, ("rq.enqueue", "rq.claim", "rq.ack")),
    "LPUSH + LMOVE + LREM (no lease, no retry)": (lists, ("lpush", "lmove", "lrem")),
    "XADD + XREADGROUP + XACK + XDEL": (streams, ("xadd", "xreadgroup", "xack", "xdel")),
    "any module at least: opens the key, replies as much, keeps nothing": (floor, ("floor.enqueue", "floor.claim", "floor.ack")),
}
OURS, LISTS, STREAMS, _ = CYCLES
DEPTHS = (16, 1)


def once(server, name, jobs, depth):
    """Per job: event-loop time by command and processor time in microseconds."""
    run, commands = CYCLES[name]
    client = server.client
    # Without ASYNC, the server gives its memory back to the kernel.
    client.call("FLUSHALL", "ASYNC")
    while client.info("memory")["lazyfree_pending_objects"] != "0":
        time.sleep(0.01)
    client.call("CONFIG", "RESETSTAT")
    cpu = server.cpu()
    run(client, jobs, depth)
    cpu = server.cpu() - cpu
    steps = []
    for command in commands:
        usec, calls = server.event_loop_us({command})
        assert calls == jobs, f"{name}: {calls} calls of {command}"
        steps.append(usec / jobs)
    return steps, cpu / jobs * 1e6


def measure(options, peers):
    jobs, rounds = (20_000, 3) if options.quick else (100_000, 9)
    rounds = options.rounds or rounds
    found = {(name, depth): [] for name in CYCLES for depth in (BATCH, *DEPTHS)}
    queues, beanstalkd = peers.on_redis(), peers.beanstalkd()
    if beanstalkd and not beanstalkd.missing:
        found.update({(beanstalkd.name, depth): [] for depth in DEPTHS})
    with Server("--loadmodule", str(Server.floor()), environment=KEEPS_MEMORY) as server:
        for depth in (BATCH, *DEPTHS):
            # One at a time takes the client long, and what it shows is steady.
            few = jobs if depth == BATCH else jobs // 5
            for round, name in in_turns(CYCLES, rounds):
                say(f"life cycle, {depth} at a time, round {round + 1} of {rounds}: {name}")
                found[name, depth].append(once(server, name, few // depth * depth, depth))
                if depth in DEPTHS and name == OURS and beanstalkd and not beanstalkd.missing and round < 3:
                    say(f"life cycle, {depth} at a time, round {round + 1} of {rounds}: {beanstalkd.name}")
                    found[beanstalkd.name, depth].append((None, beanstalkd.once(few // depth * depth, depth)))
    for round, peer in in_turns([peer for peer in queues if not peer.missing], 3):
        say(f"life cycle, round {round + 1} of 3: {peer.name}")
        peer.once(options.quick)

    def steps(name):
        return [median(step) for step in zip(*(figures[0] for figures in found[name, BATCH]))]

    def time(name):
        return sum(steps(name))

    def cpu(name, depth):
        return median(figures[1] for figures in found[name, depth])

    rows = []
    for name in CYCLES:
        used = f"{' + '.join(f'{step:.2f}' for step in steps(name))} = {time(name):.2f}"
        rows.append([name, used, f"{time(name) / time(LISTS):.2f}", f"{time(name) / time(OURS):.1f}"])
    for peer in queues:
        rows.append(peer.row(time(LISTS), time(OURS)))
        if not peer.missing and peer.name.startswith("BullMQ"):
            targets.check("life cycle beside BullMQ", time(OURS) / peer.time(), most=1 / 40)
    targets.check("life cycle beside the lists", time(OURS) / time(LISTS), most=1.0)
    targets.check("life cycle beside the streams", time(OURS) / time(STREAMS), most=0.25)
    yield Table("Whole life of a job: time that it takes from everybody else on the server",
                ["per job", "event loop, µs", "to the lists", "to us"], rows,
                "The first four on memory that the server had before: what the kernel takes to hand out a new page is not in them.")

    rows = []
    if beanstalkd and beanstalkd.missing:
        rows.append([f"beanstalkd: NOT MEASURED, it could not be installed here", "", "", "", ""])
    for name in [*CYCLES, *{name for name, _ in found if name not in CYCLES}]:
        row = [name]
        for depth in DEPTHS:
            row += [f"{cpu(name, depth):.1f}", f"{cpu(name, depth) / cpu(LISTS, depth):.2f}"]
        rows.append(row)
    for depth in DEPTHS:
        targets.check(f"processor time at pipeline {depth} beside the lists",
                      cpu(OURS, depth) / cpu(LISTS, depth), most=1.15)
    yield Table("The same in processor time of the whole server, network included",
                ["per job", "16 at a time, µs", "to the lists", "1 at a time, µs", "to the lists"], rows)
