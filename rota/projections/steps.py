"""The steps of the clock: how far it has been set in all, and when it was set last.

Order is by seq: `at` goes back where the clock was set back. What is kept as a moment less `shift`
lies on a line that never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rota.domain import events as e
    from rota.domain.events import Record

STEPS_MAX = 256
"""So many of the last steps are kept: a task that has left memory is told by today's clock."""


class StepTaken(NamedTuple):
    """One step, at `seq`; `shift` is how far the clock had been set in all, with it."""

    seq: int
    was: int
    now: int
    shift: int


class Steps:
    """The steps that were taken over."""

    def __init__(self) -> None:
        self.shift = 0
        self.latest = 0
        self.last: list[StepTaken] = []

    def on_stepped(self, record: Record[e.ClockStepped]) -> None:
        """Note a step; `latest` is the latest moment that the clock was ever set back from."""
        event = record.event
        self.shift += event.now - event.was
        self.latest = max(self.latest, event.was)
        self.last = [
            *self.last[1 - STEPS_MAX :],
            StepTaken(record.seq, event.was, event.now, self.shift),
        ]

    def copied(self) -> Steps:
        """Give them as they are now, for whoever reads beside the loop."""
        copy = Steps()
        copy.shift, copy.latest, copy.last = self.shift, self.latest, self.last
        return copy

    def until(self, seq: int) -> Steps:
        """Give those that had been taken by a record."""
        then = Steps()
        then.last = [step for step in self.last if step.seq <= seq]
        then.shift = then.last[-1].shift if then.last else 0
        return then

    def since(self, seq: int, until: int | None = None) -> int:
        """Give how far the clock was set after one record, up to and with another."""
        return sum(
            step.now - step.was
            for step in self.last
            if seq < step.seq and (until is None or step.seq <= until)
        )

    def recent(self, now: int, within_us: int) -> list[StepTaken]:
        began = now - self.shift - within_us
        return [step for step in self.last if step.now - step.shift > began]

    def dump(self) -> dict[str, Any]:
        return {"shift": self.shift, "latest": self.latest, "last": [list(s) for s in self.last]}

    def load(self, data: dict[str, Any]) -> None:
        self.shift, self.latest = data["shift"], data["latest"]
        self.last = [StepTaken(*row) for row in data["last"]]
