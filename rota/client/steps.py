"""What a client does, without doing it: one request, several of them, a wait, a stream.

A call of the API is described once, as a `Call` or as a generator of steps (a `Flow`) that is sent
what became of each. Whoever drives it does the steps, blocking a thread (sync_client.py) or
awaiting them (client.py); what a step raises is raised where the flow waits for it. So nothing here
knows of sockets, and both faces of the client behave alike.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rota.clock import monotonic_s
from rota.errors import RotaError, ServerUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Json = dict[str, Any]
T = TypeVar("T")

PASSING = frozenset({"storage_unavailable", "shutting_down", "unreachable"})
"""The codes of what a server gets over by itself."""
RETRY_S = 0.1
RETRY_S_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request; its answer is JSON."""

    method: str
    path: str
    query: Json | None = None
    body: Json | None = None
    wait_s: float = 0.0
    """How much longer the answer may take, because it was asked to wait."""
    is_safe: bool = False
    """Whether sending it twice does no more than sending it once."""


@dataclass(frozen=True, slots=True)
class Send:
    """A call, sent once."""

    call: Call


@dataclass(frozen=True, slots=True)
class Together:
    """Calls that need not wait for each other; gives a list of answers and refusals."""

    calls: Sequence[Call]
    at_once: int


@dataclass(frozen=True, slots=True)
class Sleep:
    """A pause."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Open:
    """A stream of events after a seq; it takes the place of one that is open."""

    path: str
    after: int
    query: Json


@dataclass(frozen=True, slots=True)
class Next:
    """The next event of the open stream; None when it has ended, or nothing came in time."""

    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class Give(Generic[T]):
    """A row for whoever iterates."""

    row: T


Step = Call | Send | Together | Sleep | Open | Next
Flow = Generator[Step, Any, T]
"""Steps, and what they give in the end."""
Rows = Generator[Step | Give[T], Any, None]
"""Steps, and rows in between."""


def once(call: Call) -> Flow[Json]:
    """Make a flow of one request."""
    answer: Json = yield call
    return answer


def pauses(first_s: float = RETRY_S, most_s: float = RETRY_S_MAX) -> Iterator[float]:
    """Give growing pauses without end, each somewhere between half and all of what is due.

    Chance keeps those who were cut off together from coming back together.
    """
    due = first_s
    while True:
        yield due * random.uniform(0.5, 1.0)  # noqa: S311 - no secret hangs on it
        due = min(due * 2, most_s)


def is_passing(error: RotaError) -> bool:
    """Whether the same request may well be served a little later."""
    return error.code in PASSING or isinstance(error, ServerUnreachable)


def insist(call: Call, retries: int, within_s: float) -> Flow[Json]:
    """Send a call; again, if that is safe, while the server is away: so often, and so long."""
    end = monotonic_s() + within_s
    tries = pauses()
    for left in range(retries if call.is_safe else 0, -1, -1):
        try:
            answer: Json = yield Send(call)
        except RotaError as error:
            pause = next(tries)
            if not left or not is_passing(error) or monotonic_s() + pause > end:
                raise
        else:
            return answer
        yield Sleep(pause)
    raise AssertionError


def stream_rows(
    open_at: Callable[[int], Open], after: int, on_lost: Callable[[str], None] | None = None
) -> Rows[Json]:
    """Give the events of a stream for ever; a lost connection is made again where it was lost.

    Raises if the first one cannot be made, or the server refuses.
    """
    stood = False
    tries = pauses()
    while True:
        try:
            yield open_at(after)
            stood = True
            while (event := (yield Next())) is not None:
                after, tries = event["seq"], pauses()
                yield Give(event)
            lost = "the server ended the stream"
        except RotaError as error:
            if not stood or not is_passing(error):
                raise
            lost = error.message
        if on_lost is not None:
            on_lost(lost)
        yield Sleep(next(tries))


def sifted(rows: Rows[T], show: Callable[[T], Sequence[T] | None]) -> Rows[T]:
    """Pass on the steps of another flow; give what `show` makes of its rows, until that is None."""
    step = next(rows)
    while True:
        if isinstance(step, Give):
            shown = show(step.row)
            if shown is None:
                return
            for row in shown:
                yield Give(row)
            step = next(rows)
            continue
        try:
            answer = yield step
        except RotaError as error:
            step = rows.throw(error)
        else:
            step = rows.send(answer)
