"""How fast is a verified replay, and how fast a start from a snapshot?

A log of 1,000,000 events (250,000 whole lives at 50 tasks/s, the default retention, 5,000 of them
still waiting) is written, then folded from zero with every digest checked, then rebuilt from its
snapshot plus tail. The floor is reading the same records from LMDB and hashing them, without
decoding or folding.
"""

import gc
import time
from hashlib import blake2b

import lmdb
from common import arguments, report, temp_folder

from rota.actors.recovery import rebuild
from rota.domain import events as e
from rota.domain.commands import Limits
from rota.eventlog import chain, codec
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.port import Snapshot, Stored
from rota.projections.control import limits_to
from rota.projections.state import SNAPSHOT_VERSION, State
from rota.server import GC_THRESHOLDS

GOAL = 100_000


def write_log(folder, count, tail):
    """Write lives of tasks, 50 a second; snapshot `tail` events before the end."""
    log = LmdbLog(folder)
    epoch = log.claim()
    state, digest, batch, seq, at = State(), bytes(32), [], 0, 1_790_000_000_000_000
    snapshot = None

    def put(event, cause=0):
        nonlocal seq, digest, at, snapshot
        seq += 1
        at += 5000
        record = e.Record(seq, at, event, "", cause)
        body = codec.encode(record)
        digest = chain.extend(digest, body)
        state.apply(record)
        batch.append(Stored(seq, digest, body, codec.subject_of(event)))
        if len(batch) == 5000:
            log.append(batch, batch[0].seq - 1, epoch)
            batch.clear()
        if seq == count - tail:
            snapshot = Snapshot(seq, digest, SNAPSHOT_VERSION, state.dump())

    put(e.ServerStarted("bench", limits_to(Limits())))
    n = 0
    while seq < count:
        n += 1
        task, agent = f"tsk_{n:08d}", f"agent-{n % 100}"
        put(e.TaskSubmitted(task, agent, "echo", "builtin", 1, 2, {"text": "hello", "n": n}))
        if n % 50 == 0:
            continue  # some wait
        born = seq
        put(e.TaskAssigned(task, agent, 1), born)
        assigned = seq
        put(e.TaskStarted(task, agent, 1), assigned)
        put(e.TaskSucceeded(task, agent, 1, {"echo": {"text": "hello", "n": n}}), assigned)
    if batch:
        log.append(batch, batch[0].seq - 1, epoch)
    log.close()
    return snapshot, state


def floor_read(folder):
    """Read and hash every record, nothing else."""
    env = lmdb.open(str(folder), readonly=True, max_dbs=8, lib_version=0)
    database = env.open_db(b"events", create=False)
    start, count, digest = time.perf_counter(), 0, bytes(32)
    with env.begin() as txn:
        for _, value in txn.cursor(database).iternext():
            digest = blake2b(digest + value[32:], digest_size=32).digest()
            count += 1
    seconds = time.perf_counter() - start
    env.close()
    return count / seconds


def timed(folder, *, use_snapshots):
    log = LmdbLog(folder)
    gc.collect()
    start = time.perf_counter()
    state = rebuild(log, use_snapshots=use_snapshots)
    seconds = time.perf_counter() - start
    log.close()
    return state, seconds


def main():
    args = arguments(
        __doc__.splitlines()[0],
        events=(1_000_000, "events in the log"),
        tail=(1000, "events after the snapshot"),
        rounds=(3, "replays, the best counts"),
    )
    gc.set_threshold(*GC_THRESHOLDS)
    with temp_folder() as folder:
        data = folder / "data"
        snapshot, state = write_log(data, args.events, args.tail)
        floor = floor_read(data)
        full_state, full = min(
            (timed(data, use_snapshots=False) for _ in range(args.rounds)), key=lambda r: r[1]
        )
        log = LmdbLog(data)
        log.save_snapshot(snapshot)
        log.close()
        quick_state, quick = min(
            (timed(data, use_snapshots=True) for _ in range(args.rounds)), key=lambda r: r[1]
        )
        size = (data / "data.mdb").stat().st_size
        assert full_state.digest() == quick_state.digest() == state.digest()
        assert quick_state.snapshot_seq == snapshot.seq
        seq = full_state.seq
    rate = seq / full
    rows = [
        ("floor: read and hash only", floor, "events/s", "", None),
        ("verified replay", rate, "events/s", f"at least {GOAL:,}", rate >= GOAL),
        ("verified replay / floor", rate / floor, "x", "", None),
        (f"full replay of {seq:,} events", full, "s", "", None),
        (f"start from a snapshot ({len(state.tasks):,} tasks in memory)", quick, "s", "", None),
        (
            "start from a snapshot / full replay",
            quick / full,
            "x",
            "at most 0.1",
            quick <= full / 10,
        ),
        ("log on disk", size / seq, "bytes/event", "", None),
    ]
    report("replay", rows, as_json=args.json)


if __name__ == "__main__":
    main()
