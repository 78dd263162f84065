"""What the simulation knows of memory: what must leave it, what must be found all the same.

Refusals beyond a rate are counted, never lost and never recorded one by one; ended tasks stay
within their budgets and leave by the clock even while nothing is recorded; and whoever has left is
found in the log as the model knows him.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from support.sim_rules import FINAL, Rule

from rota.actors.recovery import task_from_log
from rota.domain import refusals
from rota.projections import stats, tasks

if TYPE_CHECKING:
    from support.sim_model import Model, ModelTask
    from support.sim_parts import SimShard
    from support.simulation import World

    from rota.domain.events import Record

RECORDS_PER_S = 2
REJECTED_MAX = 3
S = 1_000_000
SMALL = (
    (refusals, "RECORDS_PER_S", RECORDS_PER_S),
    (refusals, "AGENTS_NAMED_MAX", 1),
    (stats, "AGENTS_KEPT", 2),
    (tasks, "REJECTED_MAX", REJECTED_MAX),
    (tasks, "VOID_MAX", 1),
)
"""Bounds of the production code that are set low."""


class Refusals(Rule):
    """Refusals: few records a second, and the rest counted."""

    def __init__(self, model: Model) -> None:
        """Start with none."""
        super().__init__(model)
        self.counted = 0
        self.recorded = 0
        self._recent: deque[int] = deque()

    def on_server_started(self, record: Record) -> None:
        self._recent.clear()

    def on_clock_stepped(self, record: Record) -> None:
        self._recent.clear()

    def on_task_rejected(self, task: ModelTask, record: Record) -> None:
        self.recorded += 1
        if task.event.params is not None or task.event.callback is not None:
            self.violated(f"the refusal of {task.id} keeps what it was to do")
        self.on_batch_rejected(record)

    def on_batch_rejected(self, record: Record) -> None:
        recent = self._recent
        recent.append(record.at)
        while recent[0] <= record.at - S:
            recent.popleft()
        if len(recent) > 2 * RECORDS_PER_S:  # the end of one second, and the begin of the next
            self.violated(f"{len(recent)} refusals were recorded within a second")

    def on_refusals_counted(self, record: Record) -> None:
        event: Any = record.event
        self.counted += event.tasks
        if event.tasks != sum(event.agents.values()) + event.others or len(event.agents) > 1:
            self.violated(f"refusals were counted wrongly: {event}")
        if not event.tasks and not event.batches:
            self.violated("no refusals were counted")

    def on_task_revived(self, task: ModelTask, record: Record) -> None:
        event: Any = record.event
        if event.restored is not None:
            self.model.seen["restored"] += 1
        if event.restored_batch is not None:
            self.model.seen["restored batch"] += 1


def check_kept(world: World, shard: SimShard) -> None:
    """Hold what is in memory against its bounds; to be asked after every record."""
    state = shard.state
    limits = state.control.limits
    ended = [task for task in state.tasks if task.state.value in FINAL]
    if limits.ended and len(ended) > max(limits.ended, 1):
        world.violated(f"{len(ended)} ended tasks are in memory, not {limits.ended}")
    size = sum(task.weight for task in ended)
    if limits.ended_bytes and size > limits.ended_bytes and len(ended) > 1:
        world.violated(f"ended tasks of {size} bytes are in memory, not {limits.ended_bytes}")
    if state.tasks.ended_bytes != size:
        world.violated(f"{state.tasks.ended_bytes} bytes are counted, and there are {size}")
    if sum(task.state.value == "rejected" for task in ended) > REJECTED_MAX:
        world.violated("more rejected tasks are in memory than may be")


def check_forgotten(world: World) -> None:
    """Look at a moment at which everything due has happened: what is over has left memory."""
    state, now = world.shard.state, world.shard.journal.now()
    for task in state.tasks:
        if task.state.value in FINAL and task.finished_at + state.tasks.ttl_us + S <= now:
            world.violated(f"{task.id} ended too long ago to be in memory still")
    if world.shard.archive._attic:
        world.violated("what is durable is held on to")


def judge(world: World) -> None:
    """Judge the end: every refusal is accounted for, and every task is found."""
    shard, model = world.shard, world.model
    rejected = model.refusals.recorded + model.refusals.counted
    if shard.state.stats.all_time()["rejected"] != rejected:
        world.violated(f"{rejected} were refused, and another number is told")
    is_exact = not world.faults.count  # whoever met a fault was told of that instead
    if is_exact and model.refusals.counted - world.counted_before != world.counted:
        many = model.refusals.counted - world.counted_before
        world.violated(f"{world.counted} were told that they are refused, and {many} are counted")
    for task in model.tasks.values():
        found = shard.archive.task_here(task.id)
        if found is None:
            found = task_from_log(shard.log, task.id, shard.state.steps)
        if found is None or found.state.value != task.state:
            world.violated(f"{task.id} is {task.state}, and is not found so")
        elif found.attempt != task.attempt or found.result != task.result:
            world.violated(f"{task.id} is not found as it was")
