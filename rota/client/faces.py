"""The two faces of one call: `asks` and `iterates` turn a description into a method of both.

A description is a function that gives a `Call` or a flow of steps. On a client that blocks, the
method made of it gives the answer; on one that awaits, the same answer is awaited. The types say
so, too: mypy and editors see a dict on one client, and something to await on the other.
"""

from __future__ import annotations

from functools import wraps
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from rota.client.steps import Call, Flow, Json, Rows, once

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from rota.client.client import AwaitingFace
    from rota.client.sync_client import BlockingFace

P = ParamSpec("P")
T = TypeVar("T")


class Described(Generic[P]):
    """What both kinds of calls have: a description, and how it reads on either client."""

    _given = "{}"
    _awaited = "Awaitable[{}]"

    def __init__(self, describe: Callable[Concatenate[Any, P], Any]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__
        self._signatures: dict[tuple[bool, bool], Signature] = {}

    def __set_name__(self, owner: type, name: str) -> None:
        self._qualname = f"{owner.__name__}.{name}"

    def _method(self, face: Any, owner: type, drive: Callable[[Any, Any], Any]) -> Any:
        """Give a client's method, or without one the class's, with what help() asks it for."""
        describe, is_bound = self._describe, face is not None

        def bound(*args: Any, **kwargs: Any) -> Any:
            return drive(face, describe(face, *args, **kwargs))

        def unbound(by: Any, /, *args: Any, **kwargs: Any) -> Any:
            return drive(by, describe(by, *args, **kwargs))

        method: Any = bound if is_bound else unbound
        method.__name__ = self._describe.__name__
        method.__qualname__ = self._qualname
        method.__module__, method.__doc__ = self._describe.__module__, self.__doc__
        is_awaited = getattr(owner, "is_awaited", False)
        found = self._signatures.get((is_awaited, is_bound))
        if found is None:
            found = self._signatures[is_awaited, is_bound] = self._signature(
                is_awaited=is_awaited, is_bound=is_bound
            )
        method.__signature__ = found
        return method

    def _signature(self, *, is_awaited: bool, is_bound: bool) -> Signature:
        whole = signature(self._describe)
        given = str(whole.return_annotation).removesuffix("]").partition("[")[2] or "Json"
        face, *rest = whole.parameters.values()
        gives = (self._awaited if is_awaited else self._given).format(given)
        return Signature(rest if is_bound else [face, *rest], return_annotation=_Words(gives))


class _Words(str):
    """A type as help() shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Asked(Described[P], Generic[P, T]):
    """A call that gives one answer."""

    if TYPE_CHECKING:

        def __init__(self, describe: Callable[Concatenate[Any, P], Flow[T]]) -> None: ...

    @overload
    def __get__(self, face: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, face: BlockingFace, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, face: AwaitingFace, owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, face: Any, owner: type) -> Any:
        return self._method(face, owner, lambda by, described: by.run(described))


class Iterated(Described[P], Generic[P, T]):
    """A call that gives rows, one after the other."""

    _given = "Iterator[{}]"
    _awaited = "AsyncIterator[{}]"
    if TYPE_CHECKING:

        def __init__(self, describe: Callable[Concatenate[Any, P], Rows[T]]) -> None: ...

    @overload
    def __get__(self, face: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, face: BlockingFace, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, face: AwaitingFace, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, face: Any, owner: type) -> Any:
        return self._method(face, owner, lambda by, described: by.iterate(described))


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
