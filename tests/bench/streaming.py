"""Words of a model, one by one, and somebody who follows them live: beside a stream as the server has it."""

import hiredis

from rig import Client, Server, Table, each, in_turns, median, say

CHUNK = b" words are"
OURS, STREAM = "RQ.EMIT, RQ.READ", "XADD, XREAD"


def start(server, name):
    """What puts out a chunk, and what waits for those behind a position."""
    client = server.client
    client.call("FLUSHALL")
    if name == STREAM:
        return ("XADD", "out", "*", "chunk", CHUNK), lambda position: ("XREAD", "BLOCK", 0, "STREAMS", "out", position)
    client.call("RQ.QUEUE.SET", "queue", "MAXOUTPUT", 64 << 20)
    client.call("RQ.ENQUEUE", "queue", "x")
    job, token, *_ = client.call("RQ.CLAIM", "queue", "worker", "LEASE", 3_600_000)[0]
    return (
        ("RQ.EMIT", "queue", job, token, CHUNK),
        lambda position: ("RQ.READ", "queue", job, "FROM", position, "BLOCK", 0),
    )


def live(server, name, chunks):
    """Microseconds of the event loop per chunk that a reader waits for: to put it out, and to wait for it."""
    emit, read = start(server, name)
    reader, writer = Client(server.port), Client(server.port)
    server.client.call("CONFIG", "RESETSTAT")
    position = b"0"
    for _ in range(chunks):
        reader.socket.sendall(hiredis.pack_command(read(position)))
        while server.client.info("clients")["blocked_clients"] != "1":
            pass
        writer.call(*emit)
        reply = reader.reply()
        position = reply[0] if name == OURS else reply[0][1][-1][0]
    reader.close()
    writer.close()
    names = {emit[0].lower(), read(position)[0].lower()}
    in_commands, _ = server.event_loop_us(names)
    return in_commands / chunks


def kept(server, name, chunks):
    """Bytes per chunk that is kept, and microseconds of the event loop to put it out."""
    emit, _ = start(server, name)
    before = server.memory()
    server.client.call("CONFIG", "RESETSTAT")
    each(server.client, [emit] * chunks)
    in_commands, _ = server.event_loop_us({emit[0].lower()})
    return (server.memory() - before) / chunks, in_commands / chunks


def measure(options, _peers):
    told, put_out, rounds = (500, 5_000, 2) if options.quick else (5_000, 60_000, 5)
    rounds = options.rounds or rounds
    found = {name: [] for name in (OURS, STREAM)}
    with Server() as server:
        for round, name in in_turns(found, rounds):
            say(f"streaming, round {round + 1} of {rounds}: {name}")
            found[name].append((live(server, name, told), *kept(server, name, put_out)))
    rows = [
        [name, *(f"{median(each[which] for each in found[name]):.{digits}f}" for which, digits in ((0, 1), (2, 2), (1, 1)))]
        for name in found
    ]
    yield Table(f"Chunks of {len(CHUNK)} bytes, put out by a worker one by one",
                ["per chunk", "event loop with a reader who waits for it, µs", "event loop to keep it, µs", "bytes kept"], rows,
                "The reader's command and its answer are in the first column; the stream is without lease, run, bound and end.")
