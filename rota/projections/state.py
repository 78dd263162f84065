"""The whole state of a shard: every projection, folded together.

`apply` is the one fold: live and in replay, it is the same code. Tasks are folded first, then what
is derived from them. `dump` and `load` are a snapshot's two ends; `digest` is what tests compare.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

from rota.domain import events as e
from rota.domain.task import FOLDS, ROW, Task
from rota.projections.backlog import Backlog
from rota.projections.control import Control
from rota.projections.deliveries import Deliveries
from rota.projections.slots import Slots
from rota.projections.stats import Stats
from rota.projections.tasks import US_PER_S, Tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    Handler = Callable[[e.Record], None]
    TaskHandler = Callable[[e.Record, Task], None]

SNAPSHOT_VERSION = 1
"""Raise it when the shape of a dump changes; older snapshots are then ignored."""


class State:
    """Everything that is known after `seq`."""

    def __init__(self) -> None:
        """Start before the first event."""
        self.seq = 0
        self.at = 0
        self.snapshot_seq = 0
        self.tasks = Tasks()
        self.backlog = Backlog(self.tasks)
        self.slots = Slots(self.tasks)
        self.deliveries = Deliveries()
        self.stats = Stats()
        self.control = Control()
        self._about_tasks = self._task_table()
        self._others = self._other_table()

    def _task_table(self) -> dict[type[Any], tuple[TaskHandler, ...]]:
        """Who folds the facts about a task, in order."""
        tasks, backlog, slots = self.tasks, self.backlog, self.slots
        stats = self.stats
        ended: tuple[TaskHandler, ...] = (
            tasks.on_ended,
            backlog.on_left,
            slots.on_freed,
            self.deliveries.on_ended,
        )
        return {
            e.TaskSubmitted: (backlog.on_ready, stats.on_submitted),
            e.TaskRejected: (stats.on_rejected,),
            e.TaskAssigned: (
                FOLDS[e.TaskAssigned],
                backlog.on_assigned,
                slots.on_taken,
                stats.on_assigned,
            ),
            e.TaskStarted: (FOLDS[e.TaskStarted],),
            e.TaskSucceeded: (*ended, stats.on_succeeded),
            e.TaskFailed: (*ended, stats.on_failed),
            e.TaskExpired: (*ended, stats.on_expired),
            e.TaskCancelled: (*ended, stats.on_cancelled),
            e.AttemptInterrupted: (
                FOLDS[e.AttemptInterrupted],
                slots.on_freed,
                backlog.on_ready,
                stats.on_interrupted,
            ),
        }

    def _other_table(self) -> dict[type[Any], tuple[Handler, ...]]:
        """Who folds everything else."""
        deliveries, stats, control = self.deliveries, self.stats, self.control
        return {
            e.ServerStarted: (control.on_settings, self._on_settings, stats.on_server_started),
            e.ServerStopped: (),
            e.ConfigChanged: (control.on_settings, self._on_settings),
            e.ActorFailed: (),
            e.AgentPaused: (control.on_paused,),
            e.AgentResumed: (control.on_resumed,),
            e.ResultRefused: (stats.on_refused,),
            e.DeliverySucceeded: (deliveries.on_succeeded,),
            e.DeliveryFailed: (deliveries.on_failed,),
            e.DeliveryAbandoned: (deliveries.on_abandoned,),
        }

    def apply(self, record: e.Record) -> None:
        """Fold one record into every projection that it concerns."""
        seq, at, event, _, _ = record
        kind = type(event)
        tasks = self.tasks
        handlers = self._about_tasks.get(kind)
        if handlers is None:
            for handler in self._others[kind]:
                handler(record)
        else:
            task = tasks.by_id.get(event[0])  # type: ignore[arg-type]
            if kind is e.TaskSubmitted or kind is e.TaskRejected:
                task = tasks.add(record)
            elif task is not None and tasks.before_change is not None:
                tasks.before_change(task)
            if task is not None:  # one that has left memory is history
                for fold in handlers:
                    fold(record, task)
        self.seq, self.at = seq, at
        if tasks.ended and tasks.ended[0].finished_at <= at - tasks.ttl_us:
            tasks.forget(at)

    def _on_settings(self, record: e.Record) -> None:
        del record
        self.tasks.ttl_us = self.control.limits.result_ttl_s * US_PER_S

    def dump_head(self) -> dict[str, Any]:
        """Give everything but the tasks."""
        return {
            "seq": self.seq,
            "at": self.at,
            "row": list(ROW),
            "since": self.backlog.dump(),
            "deliveries": self.deliveries.dump(),
            "stats": self.stats.dump(),
            "control": self.control.dump(),
        }

    def dump(self) -> bytes:
        """Give everything, as the blob of a snapshot."""
        rows = [task.to_row() for task in self.tasks]
        return orjson.dumps({**self.dump_head(), "tasks": rows})

    @classmethod
    def load(cls, blob: bytes) -> State:
        """Build the state that `dump` wrote. Raises ValueError or KeyError if it cannot."""
        data = orjson.loads(blob)
        if data["row"] != list(ROW):
            msg = "the snapshot is of another shape"
            raise ValueError(msg)
        state = cls()
        state.seq, state.at = data["seq"], data["at"]
        state.snapshot_seq = state.seq
        state.tasks.load([Task.from_row(row) for row in data["tasks"]])
        state.backlog.load(data["since"])
        state.slots.load()
        state.deliveries.load(data["deliveries"])
        state.stats.load(data["stats"])
        state.control.load(data["control"])
        state.tasks.ttl_us = state.control.limits.result_ttl_s * US_PER_S
        return state

    def digest(self) -> str:
        """Give a fingerprint: equal states have equal ones."""
        rows = sorted((task.to_row() for task in self.tasks), key=str)
        whole = {
            **self.dump_head(),
            "tasks": rows,
            "waiting": self.backlog.counts(),
            "taken": [self.slots.total, self.slots.by_agent()],
        }
        return blake2b(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
