"""What workers are told: of their leases, of a heartbeat, of an outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rota.domain.task import Task


class Lent(NamedTuple):
    """A lease as its worker is told of it: the task as it was then, and the text of its params."""

    task: Task
    token: int
    attempt: int
    params: bytes
    lease_ms: int
    expires_at: int


class Heard(NamedTuple):
    """What a heartbeat is answered; without `expires_at` the task was cancelled.

    One that `must_stop` is cut off by a force-stop: the worker has to say when it has stopped.
    """

    task: str
    state: str
    expires_at: int | None
    must_stop: bool = False
    worker: str = ""


class Settled(NamedTuple):
    """What became of a task by an outcome, or by the same one when it was said before."""

    task: str
    state: str
    next_at: int = 0
    is_repeated: bool = False
