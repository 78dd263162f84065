"""What do dependencies and retries cost, next to a plain task's life in the same run?

The production shard over a real LMDB on disk, without HTTP. A DAG of 10,000 tasks in 100 layers,
each task with two parents in the layer before; 10,000 dependents of one task; tasks of which every
second attempt fails and is retried without a pause. The floor is the plain lifecycle, measured in
turns with them. `loop held` is the longest that the event loop was kept from anything else.
"""

import asyncio
import gc
import random
import sys
import time

import uvloop
from common import arguments, median, report, temp_folder
from lifecycle import CHUNK, ROOM, Window

from rota.actors import messages as m
from rota.actors.host import AsyncioHost, ThreadLine
from rota.actors.system import Shard
from rota.clock import SystemClock
from rota.domain.commands import Limits, Outcome
from rota.domain.intake import Request
from rota.domain.plan import Plan
from rota.eventlog.lmdb_store import LmdbLog
from rota.server import GC_THRESHOLDS, SWITCH_INTERVAL_S

GOAL = 0.5
LAYER = 100
GOOD = Outcome(ok=True, result={"ok": True})
BAD = Outcome(ok=False, code="unlucky", error="every second one fails")
RETRYING = Plan(retry={"kind": "fixed", "base_ms": 0, "max_attempts": 100})


class Runner:
    """Ends every attempt at once; with `luck` below 1 some of them badly."""

    leaves_nothing = staticmethod(lambda _: True)

    def __init__(self, luck):
        self.draw, self.luck = random.Random(1).random, luck

    def start(self, attempt, ended, tell):
        ended(GOOD if self.draw() < self.luck else BAD)
        return print


class Reply:
    """Lets the next chunk go when the last was taken."""

    def __init__(self, shard, chunks):
        self.shard, self.chunks = shard, chunks

    def ok(self, answers):
        commands = next(self.chunks, None)
        if commands is not None:
            self.shard.admission.tell(m.SubmitTasks(commands, self))

    def fail(self, error):
        raise error


def chunks(commands):
    """Cut commands into the chunks that are submitted at once."""
    return (tuple(commands[n : n + CHUNK]) for n in range(0, len(commands), CHUNK))


def command(n, **fields):
    """A task of one of 64 agents, under an id of its own."""
    return Request(f"agent-{n % 64}", "echo", "bench", {"x": n}, wanted_id=f"t{n}", **fields)


def dag(count):
    """Layers of tasks, each with two parents in the layer before."""
    return [
        command(n, depends=(f"t{n - LAYER}", f"t{n - LAYER - n % LAYER + (n + 1) % LAYER}"))
        if n >= LAYER
        else command(n)
        for n in range(count)
    ]


def fan_out(count):
    """One task, last of all, that all others wait for."""
    return [command(n, depends=("root",)) for n in range(1, count)] + [
        command(0)._replace(wanted_id="root")
    ]


def retried(count):
    """Tasks that are tried again at once."""
    return [
        Request(f"agent-{n % 64}", "echo", "bench", {"x": n}, plan=RETRYING) for n in range(count)
    ]


async def one_round(folder, count, make, luck=1.0):
    """Live that many tasks; give tasks/s, and the longest time that the loop was held."""
    shard = Shard(
        LmdbLog(folder),
        AsyncioHost(SystemClock()),
        limits=Limits(ROOM, ROOM, ROOM, ROOM, ROOM, 300),
        line=ThreadLine,
        runner=Runner(luck),
        courier=None,
        snapshot_every=ROOM,
    )
    shard.start()
    commands = make(count) if make is not None else None
    totals = shard.state.stats.totals
    held = 0.0
    start = last = time.perf_counter()
    if commands is None:
        shard.window_open = 1000
        Window(shard, count, 1000).fill()
    else:
        parts = chunks(commands)
        for _ in range(1000 // CHUNK):
            Reply(shard, parts).ok(())
    while totals["completed"] < count or shard.journal.durable_seq < shard.state.seq:
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        held, last = max(held, now - last), now
    seconds = time.perf_counter() - start
    assert totals["failed"] == totals["cancelled"] == 0, totals
    done = asyncio.Event()
    shard.finish(done.set)
    await done.wait()
    shard.close()
    return count / seconds, held


def main():
    args = arguments(
        __doc__.splitlines()[0], tasks=(10_000, "tasks a round"), rounds=(5, "rounds of each")
    )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    stories = {
        "plain lifecycle": (None, 1.0),
        f"DAG in layers of {LAYER}, two parents each": (dag, 1.0),
        "fan-out: all wait for one": (fan_out, 1.0),
        "retries, every second attempt fails": (retried, 0.5),
    }
    found = {name: [] for name in stories}
    with temp_folder() as folder:
        for n in range(args.rounds):
            for at, (name, (make, luck)) in enumerate(stories.items()):
                gc.collect()
                place = folder / f"{n}-{at}"
                found[name].append(uvloop.run(one_round(place, args.tasks, make, luck)))
    rows = []
    for name, rounds in found.items():
        rows.append((name, median(rate for rate, _ in rounds), "tasks/s", "", None))
        if name != "plain lifecycle":
            pairs = zip(rounds, found["plain lifecycle"], strict=True)
            ratio = median(rate / plain for (rate, _), (plain, _) in pairs)
            goal = f"at least {GOAL}" if "DAG" in name else ""
            rows.append(
                ("  ratio to the plain one", ratio, "x", goal, ratio >= GOAL if goal else None)
            )
        rows.append(("  loop held at most", median(h for _, h in rounds) * 1e3, "ms", "", None))
    report("dependencies and retries", rows, as_json=args.json)


if __name__ == "__main__":
    main()
