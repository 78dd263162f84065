"""What the SchedulesActor is told; the rest of what actors tell each other is in messages.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rota.actors.messages import Reply
    from rota.domain.firings import Passed
    from rota.domain.schedule import Definition


class CreateSchedule(NamedTuple):
    """Make a schedule; the reply is whether it is known already."""

    name: str
    wanted: Definition
    paused: bool
    by: str
    reply: Reply


class ChangeSchedule(NamedTuple):
    """Change some fields of a schedule's definition; the reply is its name."""

    name: str
    changes: dict[str, Any]
    by: str
    reply: Reply


class SteerSchedule(NamedTuple):
    """Pause, resume or delete a schedule; the reply is its name."""

    name: str
    how: str
    reason: str
    by: str
    reply: Reply


class RunSchedule(NamedTuple):
    """Fire now, beside the calendar; the reply is the fact that came of it."""

    name: str
    by: str
    reply: Reply


class FireSchedule(NamedTuple):
    """A moment of a schedule has come."""

    schedule: str
    moment: int


class LookAtSchedule(NamedTuple):
    """What a schedule made has ended, and moments of it wait for that."""

    schedule: str


class FireSome(NamedTuple):
    """The loop had its turn: go on with what is due."""


class Late(NamedTuple):
    """A schedule whose moment from `first` on has passed for long: what passed since is looked up.

    `keep` of the newest moments up to `until` are asked for, but for those that have `fired`: the
    first and last of each span of them.
    """

    schedule: str
    cron: str
    timezone: str
    first: int
    until: int
    keep: int
    fired: tuple[tuple[int, int], ...] = ()


class Reckoned(NamedTuple):
    """These moments have passed; they were looked up in the calendar beside the loop."""

    late: tuple[Late, ...]
    passed: tuple[Passed, ...]
