"""A courier that sends nothing, and keeps what it is to deliver until it is told how that went."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rota.domain.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.domain.batch import Batch
    from rota.domain.delivery import DeliveryReport
    from rota.domain.workflow import Escalation


class Sent(NamedTuple):
    """A callback under way: whose, what it tells of, and how to say what came of it."""

    task: str
    state: str
    done: Callable[[DeliveryReport], None]


class RecordingCourier:
    """A `Courier` that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def deliver(
        self,
        subject: Task | Batch | Escalation,
        tasks: Sequence[Task],
        delivery_id: str,
        done: Callable[[DeliveryReport], None],
    ) -> None:
        """Keep a callback; a batch has one state to tell of."""
        del tasks, delivery_id
        state = subject.state.value if isinstance(subject, Task) else "finished"
        self.sent.append(Sent(subject.id, state, done))
