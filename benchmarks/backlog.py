"""Does one dispatch cost more when a million tasks wait?

Builtin tasks of many agents wait behind a small cap on tasks in flight; each completion frees a
slot and dispatches the next. Measured in the production shard on a memory log (the disk is not the
question here), per completed-and-dispatched task, with 1,000 and with 1,000,000 waiting.
"""

import gc
import resource
import time

from common import arguments, report

from rota.actors import messages as m
from rota.actors.system import Shard
from rota.clock import ManualClock
from rota.domain.commands import Limits, Outcome
from rota.domain.intake import Request
from rota.eventlog.committer import Committed
from rota.eventlog.memory_store import MemoryLog

ROOM = 100_000_000


class StepHost:
    """Runs callbacks when told to, on this thread."""

    def __init__(self):
        self.clock = ManualClock()
        self.soon = []

    def call_soon(self, what):
        self.soon.append(what)

    def hurry(self, run):
        run()

    def call_at(self, at_us, what):
        pass

    def call_threadsafe(self, what, *args):
        self.soon.append(lambda: what(*args))

    def fetch(self, read, done, failed, is_wanted=None):
        raise AssertionError("nothing that waits here has left memory")

    def run(self):
        while self.soon:
            soon, self.soon = self.soon, []
            for what in soon:
                what()


class ForgetfulLine:
    """Reports every record as durable and keeps none: the log is not what is measured."""

    def __init__(self, log, epoch, report):
        self.report = report

    def hand_over(self, records):
        self.report(Committed(records[-1].seq, len(records)))

    def run(self, what):
        what()


class HeldRunner:
    """Keeps attempts running until the benchmark ends them."""

    leaves_nothing = staticmethod(lambda _: True)

    def __init__(self):
        self.running = []

    def start(self, attempt, ended, tell):
        self.running.append(ended)
        return lambda _: None


class Ignore:
    def ok(self, value):
        pass


def resident_kb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize() // 1024


def build(agents, waiting):
    """Make a shard in which that many tasks wait."""
    host, runner = StepHost(), HeldRunner()
    shard = Shard(
        MemoryLog(),
        host,
        limits=Limits(ROOM, ROOM, 20, 10, 20, 1),
        line=ForgetfulLine,
        runner=runner,
        courier=None,
        snapshot_every=ROOM,
        new_id=(f"tsk_{n:08d}" for n in range(ROOM)).__next__,
    )
    shard.start()
    host.run()
    gc.collect()
    before = resident_kb()
    ignore = Ignore()
    names = [f"agent-{n:05d}" for n in range(agents)]
    for start in range(0, waiting, 1000):
        commands = tuple(
            Request(names[n % agents], "echo", "builtin", {"text": f"item {n}"})
            for n in range(start, min(start + 1000, waiting))
        )
        shard.admission.tell(m.SubmitTasks(commands, ignore))
        host.run()
    per_task = (resident_kb() - before) * 1024 / waiting
    return shard, host, runner, per_task


def cost_of_dispatch(host, runner, rounds):
    """End tasks one by one; give the seconds per completed-and-dispatched task, best of slices."""
    good = Outcome(ok=True, result=None)
    best = float("inf")
    for _ in range(10):
        host.clock.advance_us(2_000_000)
        start = time.perf_counter()
        for _ in range(rounds // 10):
            running, runner.running = runner.running, []
            running[0](good)
            runner.running = running[1:] + runner.running
            host.run()
        best = min(best, (time.perf_counter() - start) / (rounds // 10))
    return best


def main():
    args = arguments(
        __doc__.splitlines()[0],
        agents=(10_000, "agents of the large backlog"),
        tasks=(1_000_000, "waiting tasks of the large backlog"),
        rounds=(800, "dispatches measured"),
    )
    gc.disable()
    small, host, runner, _ = build(1000, 1000)
    few = cost_of_dispatch(host, runner, min(args.rounds, 800))
    del small
    large, host, runner, per_task = build(args.agents, args.tasks)
    assert large.state.backlog.total >= args.tasks - 100
    many = cost_of_dispatch(host, runner, args.rounds)
    rows = [
        ("one dispatch, 1,000 tasks of 1,000 agents wait", few * 1e6, "µs", "", None),
        (
            f"one dispatch, {args.tasks:,} tasks of {args.agents:,} agents wait",
            many * 1e6,
            "µs",
            "",
            None,
        ),
        ("ratio", many / few, "x", "at most 2", many / few <= 2),
        ("memory per waiting task", per_task, "bytes", "at most 2,048", per_task <= 2048),
    ]
    report("backlog", rows, as_json=args.json)


if __name__ == "__main__":
    main()
