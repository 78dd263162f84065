"""The whole state of a shard: every projection, folded together.

`apply` is the one fold: live and in replay, it is the same code. Tasks are folded first, then what
is derived from them. `dump` and `load` are a snapshot's two ends; `digest` is what tests compare.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, get_args

import orjson

from rota.domain import events as e
from rota.domain.task import ROW, Task
from rota.projections.backlog import Backlog
from rota.projections.control import Control
from rota.projections.deliveries import Deliveries
from rota.projections.slots import Slots
from rota.projections.stats import Stats
from rota.projections.tasks import US_PER_S, Tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    Handler = Callable[[e.Record], None]

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
        self.deliveries = Deliveries(self.tasks)
        self.stats = Stats(self.tasks)
        self.control = Control()
        self._handlers = self._table()

    def _table(self) -> dict[type[Any], tuple[Handler, ...]]:
        tasks, backlog, slots = self.tasks, self.backlog, self.slots
        deliveries, stats, control = self.deliveries, self.stats, self.control
        ended: tuple[Handler, ...] = (
            tasks.on_changed,
            backlog.on_left,
            slots.on_freed,
            deliveries.on_ended,
        )
        table: dict[type[Any], tuple[Handler, ...]] = dict.fromkeys(get_args(e.Event), ())
        table |= {
            e.ServerStarted: (control.on_settings, self._on_settings, stats.on_server_started),
            e.ConfigChanged: (control.on_settings, self._on_settings),
            e.AgentPaused: (control.on_paused,),
            e.AgentResumed: (control.on_resumed,),
            e.TaskSubmitted: (tasks.on_born, backlog.on_ready, stats.on_submitted),
            e.TaskRejected: (tasks.on_born, stats.on_rejected),
            e.TaskAssigned: (
                tasks.on_changed,
                backlog.on_assigned,
                slots.on_taken,
                stats.on_assigned,
            ),
            e.TaskStarted: (tasks.on_changed,),
            e.TaskSucceeded: (*ended, stats.on_succeeded),
            e.TaskFailed: (*ended, stats.on_failed),
            e.TaskExpired: (*ended, stats.on_expired),
            e.TaskCancelled: (*ended, stats.on_cancelled),
            e.AttemptInterrupted: (
                tasks.on_changed,
                slots.on_freed,
                backlog.on_ready,
                stats.on_interrupted,
            ),
            e.ResultRefused: (stats.on_refused,),
            e.DeliverySucceeded: (deliveries.on_succeeded,),
            e.DeliveryFailed: (deliveries.on_failed,),
            e.DeliveryAbandoned: (deliveries.on_abandoned,),
        }
        return table

    def apply(self, record: e.Record) -> None:
        """Fold one record into every projection that it concerns."""
        for handler in self._handlers[type(record.event)]:
            handler(record)
        self.seq, self.at = record.seq, record.at
        self.tasks.forget(record.at)

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
        rows = sorted((task.to_row() for task in self.tasks), key=lambda row: str(row))
        whole = {
            **self.dump_head(),
            "tasks": rows,
            "waiting": self.backlog.counts(),
            "taken": [self.slots.total, self.slots.by_agent()],
        }
        return blake2b(
            orjson.dumps(whole, option=orjson.OPT_SORT_KEYS), digest_size=16
        ).hexdigest()
