"""The messages about tasks that are lent: frozen tuples, as all of them are (`messages.py`).

To the dispatcher, which lends, and to the actor that keeps the leases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rota.actors.messages import Reply

if TYPE_CHECKING:
    from rota.actors.archive import Fetched
    from rota.domain.commands import Outcome
    from rota.domain.wants import Wants
    from rota.errors import RotaError


class AwaitedReply(Reply, Protocol):
    """A reply that somebody waits for who may leave."""

    def is_awaited(self) -> bool: ...


# -- to the DispatcherActor


class LendTasks(NamedTuple):
    """Lend a worker what it wants, now or as soon as there is any; the reply is a list of `Lent`.

    When `wait_us` is over the list is empty.
    """

    wants: Wants
    wait_us: int
    reply: AwaitedReply


class LeaveLine(NamedTuple):
    """Who waits for this reply waits no longer; if it was given nothing yet, that is empty."""

    waiting_for: AwaitedReply


class LetKeysGo(NamedTuple):
    """Some keys were kept for long enough for the workers that had them."""


class GoOn(NamedTuple):
    """There are lines left to look at."""


# -- to the LeasesActor


class LeasesGranted(NamedTuple):
    """These tasks, with their tokens, were given to a worker; tell it when they are durable.

    `parents` are those whose results are asked for and that have left memory, or why there are
    none.
    """

    wants: Wants
    given: tuple[tuple[str, int], ...]
    reply: AwaitedReply
    parents: Fetched | RotaError | None = None


class LeaseOutcome(NamedTuple):
    """What a worker says of one lease; without an outcome it gives the task back."""

    lease: str
    task: str
    agent: str
    token: int
    outcome: Outcome | None


class SettleLeases(NamedTuple):
    """Take what a worker says of its leases; the reply is a list, an answer for each.

    A `worker` that says who it is speaks for its own leases only. `by` is whose token it has.
    """

    outcomes: tuple[LeaseOutcome, ...]
    worker: str | None
    by: str
    reply: Reply


class ExtendLease(NamedTuple):
    """A worker was heard of, with lines and progress of the task; the reply is a `Heard`."""

    lease: str
    task: str
    token: int
    worker: str | None
    lines: tuple[str, ...]
    level: str
    progress: Any
    lease_ms: int | None
    by: str
    reply: Reply


class LeaseOver(NamedTuple):
    """A leased task ended, or went back, without its worker."""

    task: str
    token: int
    attempt: int
    how: str


class LeasesCutOff(NamedTuple):
    """A force-stop cuts these tasks off; the workers that have some of them are to stop."""

    tasks: tuple[str, ...]


class GiveBack(NamedTuple):
    """Put tasks back that their worker was never told of."""

    leases: tuple[tuple[str, int], ...]
    reason: str


class ExpireLeases(NamedTuple):
    """The next lease may have expired."""
