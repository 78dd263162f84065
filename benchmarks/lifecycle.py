"""How many whole lives per second, without HTTP?

Admit, commit, dispatch, run a builtin, complete: the production shard over a real LMDB on disk,
with every fact synced before its effect. A bounded number of tasks is under way at once, so that
commits overlap with decisions as they do in a busy server. `--interval` sets the interpreter's
switch interval, which decides how long the committer waits for the loop.
"""

import asyncio
import gc
import sys
import time

import uvloop
from common import arguments, median, report, synced_commits, temp_folder

from rota.actors import messages as m
from rota.actors.host import AsyncioHost, ThreadLine
from rota.actors.system import Shard
from rota.clock import SystemClock
from rota.domain.commands import Limits
from rota.domain.intake import Request
from rota.eventlog.lmdb_store import LmdbLog
from rota.executors.runner import AsyncRunner
from rota.server import GC_THRESHOLDS, SWITCH_INTERVAL_S

GOAL = 8000
ROOM = 10_000_000
CHUNK = 50


class Window:
    """Keeps a bounded number of tasks under way."""

    def __init__(self, shard, count, width):
        self.shard, self.left, self.width = shard, count, width
        self.agents = [f"agent-{n}" for n in range(64)]
        self.turn = 0

    def ok(self, answers):
        self.shard.window_open += len(answers)
        self.fill()

    def fail(self, error):
        raise error

    def fill(self):
        while self.shard.window_open >= CHUNK and self.left > 0:
            self.shard.window_open -= CHUNK
            self.left -= CHUNK
            commands = tuple(
                Request(self.agents[(self.turn + n) % 64], "echo", "builtin", {"x": n})
                for n in range(CHUNK)
            )
            self.turn += CHUNK
            self.shard.admission.tell(m.SubmitTasks(commands, self))


async def one_round(folder, count, width):
    log = LmdbLog(folder)
    room = Limits(ROOM, ROOM, ROOM, ROOM, ROOM, 300)
    shard = Shard(
        log,
        AsyncioHost(SystemClock()),
        limits=room,
        line=ThreadLine,
        runner=AsyncRunner({}),
        courier=None,
        snapshot_every=ROOM,
    )
    shard.start()
    shard.window_open = width
    totals = shard.state.stats.totals
    start = time.perf_counter()
    Window(shard, count, width).fill()
    while totals["completed"] < count or shard.journal.durable_seq < shard.state.seq:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    seconds = time.perf_counter() - start
    done = asyncio.Event()
    shard.finish(done.set)
    await done.wait()
    shard.close()
    return count / seconds


def main():
    args = arguments(
        __doc__.splitlines()[0],
        tasks=(40_000, "tasks a round"),
        rounds=(3, "rounds"),
        width=(1000, "submissions under way at once"),
        interval=(SWITCH_INTERVAL_S, "switch interval in seconds"),
    )
    sys.setswitchinterval(args.interval)
    gc.set_threshold(*GC_THRESHOLDS)
    rates = []
    with temp_folder() as folder:
        commit = median(synced_commits(folder))
        for n in range(args.rounds):
            rates += [uvloop.run(one_round(folder / str(n), args.tasks, args.width))]
    best = median(rates)
    rows = [
        ("one synced commit p50", commit * 1e3, "ms", "", None),
        (
            "one task a commit, two commits a life, would give",
            1 / (2 * commit),
            "tasks/s",
            "",
            None,
        ),
        ("full lifecycle", best, "tasks/s", f"at least {GOAL:,}", best >= GOAL),
        ("ratio to one task a commit", best * 2 * commit, "x", "", None),
    ]
    report("lifecycle without HTTP", rows, as_json=args.json)


if __name__ == "__main__":
    main()
