"""Doubles for tests of your own code: rota in memory, without threads, sockets or waiting.

`InMemoryRota` is the real scheduler over a log in memory: submit tasks, let time pass, look at
what happened; the functions of your `Worker` do the work. `RecordingContext` is for calling one of
them alone. The parts can be taken alone, too: a clock that is moved by hand, a loop that runs when
it is told to, a runner whose attempts go by a script, a courier that keeps what it is given. The
page docs/guides/testing.md shows them at work.
"""

from rota.clock import ManualClock
from rota.domain.commands import Limits, Outcome
from rota.domain.delivery import DeliveryReport
from rota.domain.intake import Request
from rota.eventlog.memory_store import MemoryLog
from rota.executors.port import Attempt, Note
from rota.testing.courier import RecordingCourier, Sent
from rota.testing.host import ManualHost, PromptLine
from rota.testing.in_memory import InMemoryRota
from rota.testing.runner import Later, Running, ScriptedRunner, failed, succeeded
from rota.testing.working import RecordingContext

__all__ = [
    "Attempt",
    "DeliveryReport",
    "InMemoryRota",
    "Later",
    "Limits",
    "ManualClock",
    "ManualHost",
    "MemoryLog",
    "Note",
    "Outcome",
    "PromptLine",
    "RecordingContext",
    "RecordingCourier",
    "Request",
    "Running",
    "ScriptedRunner",
    "Sent",
    "failed",
    "succeeded",
]
