"""The two faces of one call: `asks` and `iterates` turn a description into a method of both.

A description is a function that gives a `Call` or a flow of steps, and says of what type its answer
is. On a client that blocks, the method made of it gives the answer; on one that awaits, the same
answer is awaited. The types say so, too: mypy and editors see a Task on one client, and something
to await on the other. On a client that is `GivesJson` the answers stay the JSON that came.
"""

from __future__ import annotations

import re
from functools import wraps
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, overload

from rota.client.steps import Call, Flow, Rows, once
from rota.client.words import Read, reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from rota.client.client import AwaitingFace
    from rota.client.sync_client import BlockingFace

_MODULES = re.compile(r"\b(?:\w+\.)+")
P = ParamSpec("P")
T = TypeVar("T")


class GivesJson:
    """Marks a client whose answers are the API's JSON, as it came; for programs that pass it on."""

    gives_json = True


class Described(Generic[P]):
    """What both kinds of calls have: a description, what it gives, and how that reads in help."""

    _given = "{}"
    _awaited = "Awaitable[{}]"

    def __init__(self, describe: Callable[Concatenate[Any, P], Any], gives: Any) -> None:
        self._describe = describe
        self._gives = gives
        self.__doc__ = describe.__doc__
        self._signatures: dict[tuple[bool, bool], Signature] = {}

    def __set_name__(self, owner: type, name: str) -> None:
        self._qualname = f"{owner.__name__}.{name}"

    def _read(self, owner: type) -> Read | None:
        return None if getattr(owner, "gives_json", False) else reader(self._gives)

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
        given = str(self._gives) if get_args(self._gives) else self._gives.__name__
        given = _MODULES.sub("", given)
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

    @overload
    def __get__(self, face: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, face: GivesJson, owner: type) -> Callable[P, Any]: ...
    @overload
    def __get__(self, face: BlockingFace, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, face: AwaitingFace, owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, face: Any, owner: type) -> Any:
        read = self._read(owner)
        return self._method(face, owner, lambda by, described: by.run(described, read))


class Iterated(Described[P], Generic[P, T]):
    """A call that gives rows, one after the other."""

    _given = "Iterator[{}]"
    _awaited = "AsyncIterator[{}]"

    @overload
    def __get__(self, face: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, face: GivesJson, owner: type) -> Callable[P, Any]: ...
    @overload
    def __get__(self, face: BlockingFace, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, face: AwaitingFace, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, face: Any, owner: type) -> Any:
        read = self._read(owner)
        return self._method(face, owner, lambda by, described: by.iterate(described, read))


def asks(
    gives: type[T],
) -> Callable[[Callable[Concatenate[Any, P], Call]], Asked[P, T]]:
    """Make a method of the description of one request."""

    def made(describe: Callable[Concatenate[Any, P], Call]) -> Asked[P, T]:
        @wraps(describe)
        def flow(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> Flow[Any]:
            return once(describe(face, *args, **kwargs))

        return Asked(flow, gives)

    return made


def does(
    gives: type[T],
) -> Callable[[Callable[Concatenate[Any, P], Flow[Any]]], Asked[P, T]]:
    """Make a method of several steps that lead to one answer."""
    return lambda describe: Asked(describe, gives)


def iterates(
    gives: type[T],
) -> Callable[[Callable[Concatenate[Any, P], Rows[Any]]], Iterated[P, T]]:
    """Make a method that gives rows."""
    return lambda describe: Iterated(describe, gives)
