"""The whole state of a shard: every projection, folded together.

`apply` is the one fold: live and in replay, it is the same code. Tasks are folded first, then what
is derived from them. `dump` and `load` are a snapshot's two ends; `digest` is what tests compare.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from typing import Any

import orjson

from rota.domain import events as e
from rota.domain.fold import FOLDS, NOTES
from rota.domain.moves import refusal, ways_of, wrong_end
from rota.domain.restoring import restored_batch, restored_task, restored_workflow
from rota.domain.task import ROW, Task
from rota.projections.backlog import Backlog
from rota.projections.batches import Batches
from rota.projections.browsers import Browsers
from rota.projections.control import Control
from rota.projections.daily import Daily
from rota.projections.deliveries import Deliveries
from rota.projections.folds import other_folds, task_folds
from rota.projections.graph import Graph
from rota.projections.keys import Keys
from rota.projections.projects import Projects
from rota.projections.schedules import Schedules
from rota.projections.slots import Slots
from rota.projections.stats import Stats
from rota.projections.steps import Steps
from rota.projections.tasks import Tasks
from rota.projections.tokens import Tokens

ENTRANCES = frozenset({e.TaskSubmitted, e.TaskRejected, e.TaskRevived})

SNAPSHOT_VERSION = 17
"""Raise it when the shape of a dump changes; older snapshots are then ignored."""


class State:
    """Everything that is known after `seq`."""

    def __init__(self) -> None:
        self.seq = 0
        self.at = 0
        self.snapshot_seq = 0
        self._forgot_us = 0  # when last, less the clock's shift
        self.tasks = Tasks()
        self.slots = Slots(self.tasks)
        self.backlog = Backlog(self.tasks, self.slots)
        self.browsers = Browsers(self.tasks)
        self.graph = Graph(self.tasks)
        self.batches = Batches()
        self.keys = Keys()
        self.deliveries = Deliveries()
        self.stats = Stats()
        self.daily = Daily()
        self.control = Control()
        self.steps = Steps()
        self.tokens = Tokens()
        self.projects = Projects()
        self.schedules = Schedules()
        self.keys.settled = self.steps.settled
        self.stats.is_busy = self._is_busy
        self._about_tasks = {
            kind: (ways_of(kind), folds) for kind, folds in task_folds(self).items()
        }
        self._others = other_folds(self)

    def apply(self, record: e.Record[Any]) -> None:
        """Fold one record into every projection that it concerns. Raises IllegalMove."""
        seq, at, event, _, _ = record
        kind = type(event)
        tasks = self.tasks
        about_task = self._about_tasks.get(kind)
        if about_task is None:
            for handler in self._others[kind]:
                handler(record)
        else:
            ways, folds = about_task
            task = tasks.by_id.get(event[0])
            if kind in ENTRANCES:
                task = self._enter(record, task)
            elif task is not None and tasks.before_change is not None:
                tasks.before_change(task)
            after = ways.get(task.state) if task is not None else None
            if task is not None and after is not None:
                for fold in folds:
                    fold(record, task)
                if task.state is not after:
                    raise wrong_end(record, task, after)
            elif task is not None or kind not in NOTES:  # notes of what has left memory are history
                raise refusal(record, task)
        self.seq, self.at = seq, at
        batches, keys, oldest = self.batches, self.keys, at - tasks.ttl_us
        if (
            (tasks.ended and (tasks.crowded or tasks.ended[0][0] <= oldest))
            or (batches.ended and (batches.ended[0][0] <= oldest or batches.is_crowded()))
            or keys.ending
            or keys.expiring
        ):
            self.forget(at)

    def forget(self, now: int) -> None:
        """Forget what is due at this moment: that of a record, or live between two of them.

        The record that follows is not before `now`, so in a replay it makes all forgotten that was
        forgotten live before it. And it is folded alike whether or not that is still there: a
        revival carries its task and batch, a key that is free again counts as none.
        """
        if now < self.steps.settles_at:
            now = self.steps.settled(now)
        self._forgot_us = now - self.steps.shift
        tasks = self.tasks
        oldest = now - tasks.ttl_us
        if tasks.ended and (tasks.ended[0][0] <= oldest or tasks.is_crowded()):
            tasks.forget(now)
        if self.batches.ended:
            self.batches.forget(oldest)
        self.keys.forget(now)

    @property
    def is_as_told(self) -> bool:
        """Whether a replay gives just this: nothing was forgotten since the last record."""
        return self._forgot_us <= self.at - self.steps.shift

    def next_forgetting(self) -> int | None:
        """Say from when on there is something to forget."""
        moments = [each.ended[0][0] for each in (self.tasks, self.batches) if each.ended]
        moments = [moment + self.tasks.ttl_us for moment in moments]
        end = self.keys.next_end()
        first = min([*moments, end] if end is not None else moments, default=None)
        settles_at = self.steps.settles_at
        if first is None or max(first, self.at) >= settles_at or first <= self.steps.settled_at:
            return first
        return settles_at

    def _is_busy(self, agent: str) -> bool:
        if self.backlog.of_agent(agent) or self.slots.of_agent(agent):
            return True
        return agent in self.control.paused

    def _enter(self, record: e.Record[Any], task: Task | None) -> Task | None:
        """Give the task of a fact that may make it, or bring it back."""
        event = record.event
        if not isinstance(event, e.TaskRevived):
            if task is not None:
                raise refusal(record, task)
            return self._add(record)
        if task is not None and self.tasks.before_change is not None:
            self.tasks.before_change(task)
        return self._bring_back(event) if event.restored is not None else task

    def _bring_back(self, event: e.TaskRevived) -> Task:
        """Bring a task back that had left memory, and what it belongs to."""
        assert event.restored is not None
        task = restored_task(event.restored)
        self.tasks.bring_back(task)
        if event.restored_batch is not None:
            self.batches.bring_back(restored_batch(event.restored_batch))
        if event.restored_workflow is not None:
            self.batches.bring_back(restored_workflow(event.restored_workflow))
        return task

    def _add(self, record: e.Record[e.TaskSubmitted | e.TaskRejected]) -> Task:
        """Add a new task, and what it asks for beyond the plain."""
        task = self.tasks.add(record)
        if task.plan is not None:
            self.graph.on_submitted(record, task)
            self.keys.on_submitted(record, task)
            self.batches.on_task_submitted(task)
        return task

    def on_ended(self, record: e.Record[e.TaskFact], task: Task) -> None:
        """Fold the end of a task; most belong to nothing and nobody waits for them."""
        FOLDS[type(record.event)](record, task)
        self.tasks.ends(record.at, task)
        if task.plan is not None:
            self.batches.on_task_ended(task)
            self.projects.on_task_ended(record, task)
            self.keys.on_ended(record, task)
        if task.waits is not None or task.id in self.graph.children:
            self.graph.on_ended(record, task)

    def on_revived(self, record: e.Record[e.TaskRevived], task: Task) -> None:
        """Fold what a new life means for what a task belongs to."""
        self.tasks.lives_again(task)
        for batch in self.batches.on_task_revived(record, task):
            self.keys.on_batch_revived(record, batch)
        self.keys.on_revived(record, task)

    def on_batch_finished(self, record: e.Record[e.BatchFinished]) -> None:
        batch = self.batches.on_finished(record)
        if batch is not None:
            self.keys.on_batch_finished(record, batch)
            self.deliveries.on_batch_finished(record, batch)

    def on_flow_tripped(self, record: e.Record[e.WorkflowTripped]) -> None:
        flow = self.batches.on_flow_tripped(record)
        if flow is not None:
            self.deliveries.on_flow_tripped(record, flow)

    def on_flow_ended(self, record: e.Record[e.WorkflowEnded]) -> None:
        flow = self.batches.on_flow_ended(record)
        if flow is not None:
            self.keys.on_batch_finished(record, flow)
            self.deliveries.on_batch_finished(record, flow)

    def on_clock_stepped(self, record: e.Record[e.ClockStepped]) -> None:
        """Go on by another clock: what is counted from something that happened moves with it."""
        step = self.steps.on_stepped(record)
        by_us, kept_until = step.by_us, step.kept_until
        self.tasks.carry_over(by_us, record.at, kept_until)
        self.batches.carry_over(by_us, record.at, kept_until)
        self.deliveries.carry_over(by_us, kept_until)
        all_us = 0 if step.corrects else by_us  # what was ahead ends at the moment of the step
        self.projects.carry_over(all_us, record.at)
        self.schedules.carry_over(all_us, record.at, is_back=by_us < 0)
        self.daily.turn(record.at)
        self.keys.shift = self.backlog.shift = self.steps.carried

    def before_settings(self, record: e.Record[e.ServerStarted | e.ConfigChanged]) -> None:
        """Forget by the old limits what the live server may have forgotten by them."""
        if isinstance(record.event, e.ServerStarted):
            self.steps.begin(self.at, record.event)
        self.forget(record.at)

    def on_settings(self, record: e.Record[e.ServerStarted | e.ConfigChanged]) -> None:
        del record
        self._keep()
        self.backlog.age_by(self.control.limits.aging_ms)
        self.browsers.most = self.control.limits.browsers

    def _keep(self) -> None:
        """Take over how much may be kept."""
        limits = self.control.limits
        self.tasks.keep(limits)
        self.batches.ended_tasks_max = limits.ended or sys.maxsize

    def dump_head(self) -> dict[str, Any]:
        """Give all but the tasks, the keys and the items of projects: there may be many."""
        return {
            "seq": self.seq,
            "at": self.at,
            "row": list(ROW),
            "since": self.backlog.dump(),
            "due": self.graph.dump(),
            "browsers": self.browsers.dump(),
            "batches": self.batches.dump(),
            "deliveries": self.deliveries.dump(),
            "stats": self.stats.dump(),
            "daily": self.daily.dump(),
            "control": self.control.dump(),
            "steps": self.steps.dump(),
            "tokens": self.tokens.dump(),
            "projects": self.projects.dump(),
            "schedules": self.schedules.dump(),
        }

    def dump(self) -> bytes:
        rows = [task.to_row() for task in self.tasks]
        keys, items = self.keys.dump(), self.projects.dump_items()
        return orjson.dumps({**self.dump_head(), "tasks": rows, "keys": keys, "items": items})

    @classmethod
    def load(cls, blob: bytes | bytearray) -> State:
        """Build the state that `dump` wrote. Raises ValueError or KeyError if it cannot."""
        data = orjson.loads(blob)
        if data["row"] != list(ROW):
            msg = "the snapshot is of another shape"
            raise ValueError(msg)
        state = cls()
        state.seq, state.at = data["seq"], data["at"]
        state.snapshot_seq = state.seq
        state.tasks.load([Task.from_row(row) for row in data["tasks"]])
        state.control.load(data["control"])
        state.steps.load(data["steps"])
        state.tokens.load(data["tokens"])
        state.schedules.load(data["schedules"])
        state.keys.shift = state.backlog.shift = state.steps.carried
        state.backlog.load(data["since"], state.control.limits.aging_ms)
        state.slots.load()
        state.browsers.load(data["browsers"], state.control.limits.browsers)
        state.graph.load(data["due"])
        state.batches.load(data["batches"])
        state.keys.load(data["keys"])
        state.deliveries.load(data["deliveries"])
        state.stats.load(data["stats"])
        state.daily.load(data["daily"])
        state.projects.load(data["projects"], data["items"])
        state._keep()
        return state

    def digest(self) -> str:
        """Give a fingerprint: equal states have equal ones."""
        rows = sorted((task.to_row() for task in self.tasks), key=str)
        whole = {
            **self.dump_head(),
            "tasks": rows,
            "keys": sorted(self.keys.dump()),
            "items": self.projects.dump_items(),
            "kept": [self.tasks.ended_bytes, self.batches.ended_tasks, self.backlog.bytes],
            "waiting": self.backlog.counts(),
            "taken": [self.slots.total, self.slots.by_agent()],
        }
        return blake2b(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
