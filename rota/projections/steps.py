"""The steps of the clock: how far it has been set in all, when last, and whether it is believed.

Order is by seq: `at` goes back where the clock was set back. What is kept as a moment less `shift`
lies on a line that never does. After a start the clock may be ahead, and be set right by a step
that corrects: what happened before the start is not carried over by it, and until the clock has
settled nothing is forgotten by the time that it tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain.events import ClockStepped

if TYPE_CHECKING:
    from rota.domain import events as e
    from rota.domain.events import Record

_KEPT = ("shift", "carried", "latest", "settles_at", "settled_at", "settled_carried")
STEPS_MAX = 256
"""So many of the last steps are kept: a task that has left memory is told by today's clock."""


class StepTaken(NamedTuple):
    """One step, at `seq`; `shift` is how far the clock had been set in all, with it."""

    seq: int
    was: int
    now: int
    shift: int
    corrects: bool = False

    @property
    def by_us(self) -> int:
        return self.now - self.was

    @property
    def kept_until(self) -> int:
        """Up to this moment all was dated rightly; 0 if everything is carried over."""
        return self.now if self.corrects else 0


class Steps:
    """The steps that were taken over."""

    def __init__(self) -> None:
        self.shift = 0
        self.carried = 0  # `shift` without the steps that correct
        self.latest = 0
        self.settles_at = self.settled_at = 0
        self.settled_carried = 0  # what `carried` was when the clock was last believed
        self.last: list[StepTaken] = []

    def on_stepped(self, record: Record[e.ClockStepped]) -> StepTaken:
        """Note a step; `latest` is the latest moment that the clock was ever set back from."""
        event = record.event
        self.shift += event.now - event.was
        self.latest = max(self.latest, event.was)
        corrects = bool(event.corrects)
        step = StepTaken(record.seq, event.was, event.now, self.shift, corrects)
        self.settles_at += step.by_us
        if not corrects:
            self.carried += step.by_us
            self.settled_at += step.by_us
        self.last = [*self.last[1 - STEPS_MAX :], step]
        return step

    def begin(self, before: int, event: e.ServerStarted) -> None:
        """Note a start, `before` which the last record was; it may have been doubted, too."""
        if event.settles_at is not None:
            if before >= self.settles_at:
                self.settled_at, self.settled_carried = before, self.carried
            self.settles_at = event.settles_at

    def parts_of(self, was: int, now: int) -> list[ClockStepped]:
        """Give the steps to record for one of the clock.

        One back from a clock that is not believed yet takes back first by how far it was set
        forward since; the rest corrects, if that does not lead to before what was believed.
        """
        if was < self.settles_at and now < was:
            undone = max(now, was - max(0, self.carried - self.settled_carried))
            if undone > now >= self.settled_at - (was - undone):
                first = [ClockStepped(was, undone)] if undone < was else []
                return [*first, ClockStepped(undone, now, corrects=True)]
        return [ClockStepped(was, now)]

    def settled(self, now: int) -> int:
        """Give the moment by which things are forgotten: the last one that is believed."""
        return now if now >= self.settles_at else min(now, self.settled_at)

    def copied(self) -> Steps:
        """Give them as they are now, for whoever reads beside the loop."""
        copy = Steps()
        copy.shift, copy.carried, copy.last = self.shift, self.carried, self.last
        copy.latest = self.latest
        return copy

    def until(self, seq: int) -> Steps:
        """Give those that had been taken by a record."""
        then = Steps()
        then.last = [step for step in self.last if step.seq <= seq]
        then.shift = then.last[-1].shift if then.last else 0
        return then

    def taken(self, seq: int, until: int | None = None) -> list[StepTaken]:
        """Give those that were taken after one record, up to and with another."""
        return [
            step for step in self.last if seq < step.seq and (until is None or step.seq <= until)
        ]

    def since(self, seq: int, until: int | None = None) -> int:
        """Give how far all was carried over after one record, up to and with another."""
        return sum(step.by_us for step in self.taken(seq, until) if not step.corrects)

    def recent(self, now: int, within_us: int) -> list[StepTaken]:
        began = now - self.shift - within_us
        return [step for step in self.last if step.now - step.shift > began]

    def dump(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in _KEPT}
        return kept | {"last": [list(step) for step in self.last]}

    def load(self, data: dict[str, Any]) -> None:
        for name in _KEPT:
            setattr(self, name, data[name])
        self.last = [StepTaken(*row) for row in data["last"]]
