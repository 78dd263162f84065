"""The whole system on one thread, under a seed.

The production shard runs over a log in memory, with a clock that is moved by hand. What happens
next (which actor takes its next message, when the disk writes and how much, who submits what,
when the power goes) is drawn from one seeded source, so any failure is repeated by its seed.
After a phase with faults comes a calm one, in which everything must come to its end.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from pykka import ActorRegistry
from support import sim_memory, sim_rules, sim_schedules
from support.sim_clients import Clients
from support.sim_faults import Faults, InjectedError, injected
from support.sim_flows import Undertakings
from support.sim_follower import Follower
from support.sim_model import Model
from support.sim_outside import DELIVERIES_MAX, PER_HOST_MAX, SimCourier, SimReply, SimRunner
from support.sim_parts import Disk, SimHost, SimLine, SimLog, SimShard
from support.sim_projects import Lists
from support.sim_schedules import Planners
from support.sim_tokens import Holders
from support.sim_work import Work
from support.sim_workers import Workers

from rota.actors import dependents, snapshots, snapshotter
from rota.actors.failover import Phase
from rota.actors.recovery import rebuild
from rota.clock import ManualClock
from rota.domain import dependencies, notes
from rota.domain.events import ClockStepped, TaskAssigned
from rota.domain.task import TERMINAL
from rota.eventlog.codec import decode
from rota.eventlog.replay import stored_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.actors.runtime import Runtime
    from rota.projections.state import State

MOVES_MIN, MOVES_MAX = 200, 1000
REST_MOVES_MAX = 60_000
VIOLATIONS_MAX = 1000
DAY_US = 25 * 3600 * 1_000_000
S = 1_000_000
SMALL = (
    (snapshotter, "SLICE_TASKS", 3),
    (snapshotter, "SLICE_KEYS", 2),
    (snapshotter, "SLICE_ITEMS", 2),
    (snapshots, "REST_FACTOR", 1),
    (dependencies, "AT_ONCE_MAX", sim_rules.SLICE_TASKS),
    (dependents, "SLICE_TASKS", sim_rules.SLICE_TASKS),
    (notes, "LINES_MAX", sim_rules.LINES_MAX),
    (notes, "LINE_CHARS_MAX", sim_rules.LINE_CHARS_MAX),
    (notes, "REPORTS_MAX", sim_rules.REPORTS_MAX),
    *sim_memory.SMALL,
    *sim_schedules.SMALL,
)
"""Bounds of the production code that are set low, so that small runs reach them."""


class ViolationError(AssertionError):
    """A promise was broken; says which, under which seed, and how to see it again."""

    def __init__(self, seed: int, sentence: str) -> None:
        """Say it."""
        super().__init__(
            f"seed {seed}: {sentence}\n"
            f"repeat it with: python -m pytest -s tests/simulation/test_simulation.py --seed {seed}"
        )
        self.seed = seed
        self.sentence = sentence


class EnoughError(BaseException):
    """So much is broken that the run must end at once, also out of an endless loop."""


class Outcome(NamedTuple):
    """What a run came to, and how often it came by what."""

    seed: int
    digest: str
    records: int
    reached: dict[str, int]


class World:
    """One run."""

    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        """Draw the run's character from the seed: some runs crash a lot, some never."""
        self.seed = seed
        self.rng = rng = Random(seed)
        self.verbose = verbose
        self.calm = False
        self.draining = False
        self.violation: ViolationError | None = None
        self.clock = ManualClock()
        self.log = SimLog()
        self.model = Model(self.violated)
        self.work = Work(rng)
        self.clients = Clients(self)
        self.workers = Workers(self)
        self.holders = Holders(self)
        self.flows = Undertakings(self)
        self.lists = Lists(self)
        self.planners = Planners(self)
        self.faults = Faults(self)
        self._ids = 0
        self._reads = Random(f"reads {seed}")
        self._unreadable_odds = self._reads.choice((0.0, 0.02, 0.3, 0.8))
        self._unreadable_when_calm = 2
        self.waiting: list[SimReply] = []
        self.acks: dict[str, set[str]] = {}
        self.told: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.counted = self.counted_before = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._due = 0
        self._line: int | None = None
        self.drift = 0
        self.answering: SimReply | None = None
        self.snapshot_every = rng.choice((10, 30, 100, 100_000))
        self.merge_max = rng.choice((1, 3, 1000))
        self.orderly = rng.random() < 0.3
        self.moves = rng.randint(MOVES_MIN, MOVES_MAX)
        weights = self._weights()
        self._moves = {
            name: getattr(self, f"_do_{name}", None) or getattr(self.clients, name)
            for name in weights
        }
        self._drawn = rng.choices(tuple(weights), tuple(weights.values()), k=self.moves)
        self.boot()

    def _weights(self) -> dict[str, float]:
        """Draw how often what happens."""
        rng, odds = self.rng, self.work.odds
        return {
            "step": rng.choice((8, 20, 40)),
            "loop": rng.choice((6, 20)),
            "commit": rng.choice((2, 6, 12)),
            "time": rng.choice((1, 4)),
            "day": 0.02 if odds["idempotency"] else 0,
            "submit": rng.choice((1, 2, 4)),
            "batch": rng.choice((0, 0.3, 1)),
            "wide_batch": 0.2 if self.work.is_wide else 0,
            "cancel": rng.choice((0, 0.3, 1.5)),
            "cancel_batch": rng.choice((0, 0.2)),
            "revive": rng.choice((0, 0.3, 1.5)),
            "note": rng.choice((0, 0.5)) if odds["notes"] else 0,
            "pause": rng.choice((0, 0, 0.3, 0.6)),
            "limits": rng.choice((0, 0, 0.3)),
            "disk": rng.choice((0, 0, 0.15, 0.5)),
            "crash": rng.choice((0, 0.05, 0.2)),
            "stop": rng.choice((0, 0.05)),
            "clock": odds["clock"],
            "look": 3 * odds["clock"],
            "work": 4 if odds["pull"] else 0,
            "reprioritise": rng.choice((0, 0.5, 2)),
            "bulk": rng.choice((0, 0.1, 0.3)),
        }

    def _do_work(self) -> None:
        if not self.draining:
            self.workers.move()

    # -- what the parts need -------------------------------------------------------------------

    def trace(self, text: str, *args: Any) -> None:
        """Say what happens, if anybody listens."""
        if self.verbose:
            print(f"{self.clock.wall_us() / S - 1.7e9:.6f} #{self.log.seq()} {text % args}")

    def violated(self, sentence: str) -> None:
        """Keep the first broken promise; the run ends with it."""
        self.counts["violation"] += 1
        if self.violation is None:
            self.trace("VIOLATION: %s", sentence)
            self.violation = ViolationError(self.seed, sentence)
        elif self.counts["violation"] > VIOLATIONS_MAX:
            raise EnoughError

    def after(self, delay_us: int, what: Callable[[], None]) -> None:
        """Let something happen outside, later."""
        self._due += 1
        heappush(self._events, (self.clock.steady_us() + delay_us, self._due, what))

    def acknowledged(self, subject: str, kind: str) -> None:
        """Take note of an answer; the fact behind it must be durable now, and for ever."""
        self.acks.setdefault(subject, set()).add(kind)
        self._check_ack(subject, kind)

    def _check_ack(self, subject: str, kind: str) -> None:
        needle = f'"kind":"{kind}"'.encode()
        if not any(needle in item.body for item in stored_of(self.log, subject)):
            self.violated(f"{kind} of {subject} was acknowledged and is not in the log")

    def new_id(self) -> str:
        """Give the next task id."""
        self._ids += 1
        return f"tsk_{self._ids:05d}"

    def draw(self) -> float:
        """Draw the luck of a backoff, often an extreme one."""
        return self.rng.choice((0.0, 1.0, self.rng.random()))

    def _is_unreadable(self) -> bool:
        """Draw whether a read of the log fails, while the disk is whole; when calm, hardly ever."""
        if self.calm and not self._unreadable_when_calm:
            return False
        is_unreadable = self._reads.random() < self._unreadable_odds
        self._unreadable_when_calm -= self.calm and is_unreadable
        return is_unreadable

    def refold(self) -> None:
        """Make the model anew from what is durable."""
        self.counts["exact"] += self.model.exact
        self.model = Model(self.violated)
        for item in self.log.read(0, 1 << 30):
            self.model.observe(decode(item.body))
        self.model.whole()
        self.counted, self.counted_before = 0, self.model.refusals.counted

    def compare_counts(self, shard: SimShard, record: Any) -> None:
        """Hold the projections' counts against the model's."""
        model, state = self.model, shard.state
        if state.slots.total != len(model.flying):
            self.violated(f"{state.slots.total} slots are taken by {len(model.flying)} tasks")
        if type(record.event) is TaskAssigned:
            agent = record.event.agent
            if state.slots.of_agent(agent) != model.in_flight(agent):
                self.violated(f"the slots of {agent} are miscounted")
        if state.backlog.total != model.waiting_total():
            self.violated(f"{state.backlog.total} are counted as waiting, not as many wait")
        sim_memory.check_kept(self, shard)
        self.holders.judge(record, state)
        self.flows.compare(record)
        self.lists.compare(record)
        self.planners.compare(record)
        if set(state.browsers.held) != model.browsers.held:
            self.violated("the browsers that are held are not those that were started")
        if state.browsers.count != len(model.browsers.taken()):
            self.violated(f"{state.browsers.count} browsers are counted, and not as many there are")
        if type(record.event) is ClockStepped:
            self._check_dues(state)
        if self.verbose:
            self.trace("record %d: %s", record.seq, record.event)

    def _check_dues(self, state: State) -> None:
        """Hold the moments at which callbacks are tried again against a time that nobody sets."""
        for subject, due in self.model.callbacks.due.items():
            owed = state.deliveries.pending.get(subject)
            if owed is not None and owed.due_at != due + self.model.shift:
                self.violated(f"the callback of {subject} is due at another time than was said")

    def check_line(self, record: Any) -> None:
        """Hold the time of the records against one that nobody sets."""
        told = self.model.steady - self.clock.steady_us()
        if self._line is None:
            self._line = told
        elif abs(told - self._line) > S:
            apart = (told - self._line) / S
            self.violated(f"by record {record.seq} {apart} s more have passed than have passed")

    def check_kept(self) -> None:
        """Hold what is kept of what has ended against how long it may be; less it may always be."""
        kept = {task.id for task in self.shard.state.tasks if task.state in TERMINAL}
        if kept - set(self.model.kept):
            names = sorted(kept - set(self.model.kept))[:5]
            self.violated(f"of what has ended, some is kept for too long: {names}")

    # -- living and dying ----------------------------------------------------------------------

    def boot(self) -> None:
        """Start a server on the log, whatever is in it."""
        self.clock.begin_anew()
        self._line = None
        self.host = SimHost(self.clock, self._is_unreadable)
        self.runner = SimRunner(self)
        self.courier = SimCourier(self)
        self.runner.start = self.faults.outside(self.runner.start)  # type: ignore[method-assign]
        self.courier.deliver = self.faults.outside(self.courier.deliver)  # type: ignore[method-assign]
        self.draining = False
        self.finished = False
        self.log.broken = self.log.panicked = self.log.refuses_claim = False
        shard = SimShard(
            Disk(self.log),
            self.host,
            limits=self.work.limits()._replace(
                projects=self.lists.most, run_timeout_ms=self.lists.run_timeout_ms
            ),
            rules=self.flows.new_rules(),
            line=self._make_line,
            runner=self.runner,
            courier=self.courier,
            tries_max=self.rng.choice((1, 3, 6)),
            deliveries_max=DELIVERIES_MAX,
            deliveries_per_host=PER_HOST_MAX,
            snapshot_every=self.snapshot_every,
            new_id=self.new_id,
            draw=self.draw,
            start_paused=self.rng.random() < 0.05,
            on_fatal=lambda error: self.violated(f"the server gave up: {error}"),
        )
        shard.world = self
        self.shard = shard
        self.trace("boot with %s", shard.limits)
        shard.start()
        self.follower = Follower(shard, self.log, self.seed, self.violated)
        shard.is_started = True

    def _make_line(self, *args: Any) -> SimLine:
        self.line = SimLine(*args)
        return self.line

    def _bury(self) -> None:
        self.counts["sent"] += self.courier.sent
        self.counts["snapshot"] = max(self.counts["snapshot"], len(self.log.load_snapshots()))
        self.shard.vanish()
        self.waiting.clear()
        self.workers.forget_requests()
        self._events.clear()
        if self.rng.random() < 0.3:
            self._check_replay()
        if self.work.is_drawn("clock"):
            self._do_clock()

    def _do_crash(self) -> None:
        """Cut the power: what is not in the log is gone, and so is everybody who waited."""
        self.trace("CRASH")
        self.counts["crash"] += 1
        self._bury()
        self.log.tear_snapshots(self.rng)
        self.boot()

    def _do_stop(self) -> None:
        """Shut down in good order, and start again."""
        self.trace("STOP")
        self.counts["stop"] += 1
        shard = self.shard
        shard.drain()
        self.draining = True
        while self.shard.runtime.ready and self.violation is None:
            self.move("step")
        state = shard.state
        is_known = shard.failover.phase is not Phase.REBUILDING
        given = state.stats.totals["dispatched"] if is_known else 0
        for _ in range(self.rng.randrange(60)):
            self.move(self.rng.choice(("step", "loop", "commit", "time", "step", "step")))
        if (
            not shard.degraded
            and shard.state is state
            and state.stats.totals["dispatched"] != given
        ):
            self.violated("a stopping server went on dispatching")
        failures = self.log.failures
        shard.finish(self._finish)
        for _ in range(3000):
            if self.finished or self.violation:
                break
            self.move(self.rng.choice(("step", "loop", "commit", "step")))
        if not self.finished and not self.log.broken and not shard.degraded:
            self.violated("the server never finished stopping")
        clean = self.finished and not shard.degraded and self.log.failures == failures
        shard.close()
        if clean and any(not task.is_leased for task in rebuild(self.log).slots.held()):
            self.violated("after an orderly stop there are tasks in flight")
        self._bury()
        self.boot()

    def _finish(self) -> None:
        self.finished = True

    # -- moves ---------------------------------------------------------------------------------

    def move(self, name: str) -> None:
        """Do one thing."""
        self._moves[name]()
        self.holders.act()
        self.flows.act()
        self.lists.act()
        self.planners.act()
        if self.violation is not None:
            raise self.violation

    def _do_step(self) -> None:
        running = self.host.running
        runtime = self.shard.runtime
        if runtime not in running:
            running.clear()  # those of dropped actors have nothing to run
            return
        for _ in range(1 << 20 if self.orderly else self.rng.randint(1, 6)):
            if not runtime.step(self.rng.randrange):
                self._idle(runtime)
                return
        if self.rng.random() < 0.05:
            for hook in runtime.idle:
                hook()

    def _idle(self, runtime: Runtime) -> None:
        self.host.running.discard(runtime)
        for hook in runtime.idle:
            hook()
        host = self.host
        if self.shard.degraded or self.draining or runtime.ready or host.soon or host.reading:
            return
        if self.shard.mending.is_due:
            return
        self.model.at_rest()
        self.workers.at_rest()
        self.check_kept()

    def _do_loop(self) -> None:
        host = self.host
        if host.reading and self.rng.random() < 0.3:
            host.reading.popleft()()
        elif host.posted and (not host.soon or self.rng.random() < 0.5):
            host.posted.popleft()()
        elif host.soon:
            host.soon.popleft()()
        elif host.due():
            host.fire()
        elif self._happens(self.clock.steady_us()):
            heappop(self._events)[2]()

    def _happens(self, now: int) -> bool:
        """Whether something outside happens by now."""
        return bool(self._events) and self._events[0][0] <= now

    def _do_commit(self) -> None:
        if self.line.saving and (not self.line.waiting or self.rng.random() < 0.3):
            self.line.keep()
        elif self.line.waiting:
            self.line.work(self.rng.randint(1, self.merge_max))
            if self._is_readable() and self.rng.random() < (0.3 if self.shard.degraded else 0.02):
                self._compare_live()

    def _is_readable(self) -> bool:
        """Whether all that may be read is durable; without writes it is the log, and no more."""
        shard = self.shard
        if shard.failover.phase is Phase.REBUILDING:
            return False
        return bool(shard.degraded) or shard.state.seq == self.log.seq()

    def _do_time(self) -> None:
        rng = self.rng
        due = self._next_due()
        if due is not None and rng.random() < 0.7:
            self._go_on_to(due)
        else:
            self.clock.advance_us(rng.choice((1, 1000, 300_000, 3 * S)))
        self.told_time(self.clock.wall_us())

    def _go_on_to(self, due: int) -> None:
        self.clock.advance_us(max(0, due - self.clock.steady_us()))

    def _do_day(self) -> None:
        self.clock.advance_us(DAY_US)
        self.told_time(self.clock.wall_us())

    def _do_clock(self) -> None:
        """Set the wall clock, often to what it should be."""
        rng = self.rng
        by_us = rng.choice((200_000, 400_000, 2 * S, 40 * S, 3600 * S, 3 * DAY_US))
        by_us = -self.drift if self.drift and rng.random() < 0.5 else rng.choice((by_us, -by_us))
        self.drift += by_us
        self.clock.step_us(by_us)
        self.trace("the clock is set by %s s", by_us / S)
        self.told_time(self.clock.wall_us())

    def _do_look(self) -> None:
        """Have the server look at its clock."""
        self.shard.timekeeper.look()

    def told_time(self, now: int) -> None:
        """Let everybody who waits for an answer know what time it is."""
        for reply in self.waiting:
            reply.latest = max(reply.latest, now)

    def _next_due(self) -> int | None:
        dues = [rows[0][0] for rows in (self._events, self.host.later) if rows]
        return min(dues, default=None)

    def _do_disk(self) -> None:
        log = self.log
        log.broken = not log.broken
        log.torn = log.broken and self.rng.random() < 0.3
        log.panics = self.rng.random() < 0.3
        log.refuses_claim = log.panics and not log.broken
        self.trace("the disk is %s", "broken" if log.broken else "whole")

    # -- the run -------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Live through the faulty phase, then come to rest, then be judged."""
        for name in self._drawn:
            self.move(name)
        self._calm_down()
        self._judge()
        counts = self.counts
        counts["exact"] += self.model.exact
        counts["failure"] = self.log.failures
        counts["fault"] = self.faults.count
        counts["snapshot"] = max(counts["snapshot"], len(self.log.load_snapshots()))
        counts["sent"] += self.courier.sent
        reached = {**self.model.seen, **counts}
        return Outcome(self.seed, self.log.head().digest.hex(), self.log.seq(), reached)

    def _calm_down(self) -> None:
        self.trace("CALM")
        self.calm = True
        self.log.broken = False
        self.rest()
        while self.shard.degraded and self._pass_time():
            pass
        self.clients.resume_all()
        self._do_look()
        self.rest()
        self.planners.wind_down(self._pass_time)
        self.rest()
        self.model.late_from = self.clock.now_us()
        while self._pass_time() or self.flows.let_go():
            pass

    def _pass_time(self) -> bool:
        """Go on to the next moment at which anything is due, if there is one."""
        due = self._next_due()
        if due is not None:
            self._go_on_to(due)
            self.rest()
            if not self.shard.degraded and not self.shard.mending.is_due:
                self.model.overdue(self.clock.now_us() - max(0, self.host.late_us()))
                sim_memory.check_forgotten(self)
        return due is not None

    def rest(self) -> None:
        """Go on, at one moment, until there is nothing left to do."""
        host = self.host
        for _ in range(REST_MOVES_MAX):
            now = self.clock.steady_us()
            if host.running:
                self.move("step")
            elif host.soon or host.posted or host.reading or host.due() or self._happens(now):
                self.move("loop")
            elif self.line.waiting or self.line.saving:
                self.move("commit")
            else:
                return
        self.violated("the system does not come to rest")
        raise self.violation  # type: ignore[misc]

    def _judge(self) -> None:
        """Check what must hold at rest."""
        shard = self.shard
        if shard.mending.is_due:
            self.violated("at rest, something is still to be mended")
        if shard.degraded:
            self.violated("the disk is whole again, and the server still refuses to write")
        if self.waiting:
            kinds = sorted({reply.kind for reply in self.waiting})
            self.violated(f"{len(self.waiting)} requests were never answered: {kinds}")
        if shard.state.seq != self.log.seq():
            self.violated(f"at rest {shard.state.seq} records were made, {self.log.seq()} kept")
        self.follower.at_rest()
        self.model.at_rest()
        self.check_kept()
        self.model.settled()
        sim_memory.judge(self)
        self.holders.judge_at_rest()
        self.flows.judge()
        for subject, how in self.model.callbacks.closed.items():
            if how == "delivered" and self.told.get(subject) != self.model.callbacks.ends[subject]:
                self.violated(f"whoever waits for {subject} was never told how it ended at last")
        for subject, kinds in self.acks.items():
            for kind in kinds:
                self._check_ack(subject, kind)
        self._check_replay()
        self._compare_live()
        if self.violation is not None:
            raise self.violation

    def _compare_live(self) -> None:
        """Hold the live state against the log; everything is durable."""
        told, live = rebuild(self.log, use_snapshots=False), self.shard.state
        if not alike(told, live, self.shard.journal.now()):
            self.violated("the live state is not what the log tells")

    def _check_replay(self) -> None:
        """Fold the log from its start, through every prefix, and by way of the snapshots."""
        cut = self.rng.randint(0, self.log.seq())
        state = rebuild(self.log, use_snapshots=False)
        if fingerprint(rebuild(self.log)) != fingerprint(state):
            self.violated("snapshot and tail give another state than the whole log")
        for seq in (cut, *(snapshot.seq for snapshot in self.log.load_snapshots()[:1])):
            at_cut = rebuild(self.log, until_seq=seq, use_snapshots=False)
            if fingerprint(rebuild(self.log, until_seq=seq)) != fingerprint(at_cut):
                self.violated(f"the state at {seq} is another by way of a snapshot")

    def close(self) -> None:
        """Leave nothing behind."""
        self.shard.vanish()


def alike(one: State, other: State, now: int) -> bool:
    """Whether two states are the same, once both have forgotten what is due by the same moment.

    A live state forgets by the clock, too.
    """
    for state in (one, other):
        state.forget(now)
    return fingerprint(one) == fingerprint(other)


def fingerprint(state: State) -> list[Any]:
    """Give all that a state knows, with what it derives: orders, edges, slots, starts."""
    orders = {
        agent: {lane: [task.id for task in tasks] for lane, tasks in order.lanes.items()}
        for agent, order in state.backlog.orders.items()
    }
    edges = {parent: set(tasks) for parent, tasks in state.graph.children.items()}
    recent = list(state.stats.agents)
    starting = dict(state.browsers._starting)
    return [state.digest(), orders, edges, dict(state.slots._limits), starting, recent]


class _Faults(logging.Handler):
    """Turns a failure that was logged with its traceback into a violation."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.world: World | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and self.world is not None:
            error = record.exc_info[1]
            if isinstance(error, InjectedError):
                return
            self.world.violated(f"{record.getMessage()} ({type(error).__name__}: {error})")


@contextmanager
def _arranged() -> Iterator[_Faults]:
    """Hear the loggers, and set some bounds low."""
    logger, faults = logging.getLogger("rota"), _Faults()
    before = (logger.level, logger.propagate)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    logger.addHandler(faults)
    bounds = [(module, name, getattr(module, name)) for module, name, _ in SMALL]
    for module, name, value in SMALL:
        setattr(module, name, value)
    try:
        with injected(lambda: faults.world.faults if faults.world is not None else None):
            yield faults
    finally:
        for module, name, value in bounds:
            setattr(module, name, value)
        logger.removeHandler(faults)
        logger.level, logger.propagate = before


def run_seed(seed: int, *, verbose: bool = False) -> Outcome:
    """Simulate one seed. Raises ViolationError."""
    with _arranged() as faults:
        world = World(seed, verbose=verbose)
        faults.world = world
        try:
            return world.run()
        except EnoughError:
            assert world.violation is not None
            raise world.violation from None
        except ViolationError:
            raise
        except Exception as error:
            sentence = f"the simulation raised {type(error).__name__}: {error}"
            raise ViolationError(seed, sentence) from error
        finally:
            world.close()


def first_violation(seeds: range) -> ViolationError | None:
    """Simulate seeds until one breaks a promise; give that, or None."""
    for seed in seeds:
        try:
            run_seed(seed)
        except ViolationError as violation:
            return violation
    return None


def actors_left() -> int:
    """Count the actors that were not stopped."""
    return len(ActorRegistry.get_all())
