"""The two faces of one call: `asks` and `iterates` turn a description into a method of both.

A description is a function that gives a `Call` or a flow of steps. On a client that blocks, the
method made of it gives the answer; on one that awaits, the same answer is awaited. The types say
so, too: mypy and editors see a dict on one client, and something to await on the other.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from rota.client.steps import Call, Flow, Json, Rows, once

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from rota.client.client import AwaitingFace
    from rota.client.sync_client import BlockingFace

P = ParamSpec("P")
T = TypeVar("T")


class Asked(Generic[P, T]):
    """A call that gives one answer."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: BlockingFace, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, face: AwaitingFace, owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, face: Any, owner: type) -> Any:
        if face is None:
            return self
        describe = self._describe

        @wraps(describe)
        def bound(*args: P.args, **kwargs: P.kwargs) -> Any:
            return face.run(describe(face, *args, **kwargs))

        return bound


class Iterated(Generic[P, T]):
    """A call that gives rows, one after the other."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Rows[T]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: BlockingFace, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, face: AwaitingFace, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, face: Any, owner: type) -> Any:
        if face is None:
            return self
        describe = self._describe

        @wraps(describe)
        def bound(*args: P.args, **kwargs: P.kwargs) -> Any:
            return face.iterate(describe(face, *args, **kwargs))

        return bound


def asks(describe: Callable[Concatenate[Any, P], Call]) -> Asked[P, Json]:
    """Make a method of the description of one request."""

    @wraps(describe)
    def flow(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> Flow[Json]:
        return once(describe(face, *args, **kwargs))

    return Asked(flow)


def does(describe: Callable[Concatenate[Any, P], Flow[T]]) -> Asked[P, T]:
    """Make a method of several steps that lead to one answer."""
    return Asked(describe)


def iterates(describe: Callable[Concatenate[Any, P], Rows[T]]) -> Iterated[P, T]:
    """Make a method that gives rows."""
    return Iterated(describe)
