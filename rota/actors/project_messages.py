"""What the ProjectsActor is told: frozen, in the imperative or as news (see messages.py).

What people ask says by `sees` of which agents' tasks they may know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rota.domain.project_lists import sees_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.archive import Fetched
    from rota.actors.messages import Reply
    from rota.domain.intake import Request
    from rota.domain.project_lists import Sees


class CreateProject(NamedTuple):
    """Make an empty project; the reply says whether there was none of that name."""

    project: str
    by: str
    reply: Reply


class AddItems(NamedTuple):
    """Put these on a project's list, all or none; the reply is an `ItemAdded` for each.

    With `is_one_key` they have the same idempotency key, which stands for all of them together.
    """

    project: str
    requests: tuple[Request, ...]
    before: str | None
    by: str
    reply: Reply
    fetched: Fetched | None = None
    sees: Sees = sees_all
    is_one_key: bool = False


class ItemAdded(NamedTuple):
    """An item is on its list; or `known` is the one that its idempotency key stands for."""

    item: str
    known: bool = False
    executor: str = ""


class EditItem(NamedTuple):
    """Change what an item asks for, by `change`, or its place, or both; the reply is its id.

    `before` is the item that it goes before, or a position, or None for the end; `moves` says
    whether it moves at all.
    """

    project: str
    item: str
    change: Callable[[Request], Request] | None
    moves: bool
    before: str | int | None
    by: str
    reply: Reply
    sees: Sees = sees_all


class RemoveItem(NamedTuple):
    """Take an item off its list; the reply is its id."""

    project: str
    item: str
    reason: str
    by: str
    reply: Reply
    sees: Sees = sees_all


class DeleteProject(NamedTuple):
    """Drop a project that does not run; the reply is how many items went with it."""

    project: str
    reason: str
    by: str
    reply: Reply
    sees: Sees = sees_all


class StartRun(NamedTuple):
    """Start a run; the reply is its id."""

    project: str
    mode: str
    item: str | None
    by: str
    reply: Reply
    reason: str = ""
    sees: Sees = sees_all


class StopRun(NamedTuple):
    """Have a project's run end, by `force` at once; the reply is a `Stopping`."""

    project: str
    reason: str
    force: bool
    by: str
    reply: Reply


class Stopping(NamedTuple):
    """The runs that end, or are cut off, and by force the tasks that have slots."""

    runs: tuple[str, ...]
    tasks: tuple[str, ...]


class LookAtProject(NamedTuple):
    """There may be something to decide about a project's run."""

    project: str


class StartRuns(NamedTuple):
    """There may be room for runs that are pending."""


class TimeOutRun(NamedTuple):
    """The run has made no progress for too long."""

    run: str


# -- to the WorkerPool


class KillAttempts(NamedTuple):
    """Cut off what runs of these tasks; they are cancelled when nothing of it is left."""

    tasks: tuple[str, ...]
    reason: str


class AttemptGone(NamedTuple):
    """Nothing is left of an attempt that was cut off; unless `is_sure`, nobody has said so."""

    task: str
    token: int
    is_sure: bool = True
