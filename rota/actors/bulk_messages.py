"""What is told of many tasks at once, and of one that has another priority: see messages.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rota.actors.messages import Reply
    from rota.domain.bulk import Change, Filter
    from rota.domain.task import Lane


class ChangeTasks(NamedTuple):
    """Do something with each of these that is still meant; the reply is a `Changed`."""

    tasks: tuple[str, ...]
    meant: Filter
    change: Change
    by: str
    reply: Reply


class Changed(NamedTuple):
    """So many were changed; so many were not, by the code that says why."""

    changed: int
    refused: dict[str, int]


class ReprioritiseTask(NamedTuple):
    """Give a task another priority; the reply is its state."""

    task: str
    priority: int
    by: str
    reply: Reply


class Reprioritised(NamedTuple):
    """To the dispatcher: a task of this agent went from one lane to another, or stands elsewhere.

    One that is `held` is in flight.
    """

    agent: str
    lanes: tuple[Lane, ...]
    held: str | None = None
