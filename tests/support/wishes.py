"""Requests, commands and submissions with the wishes of their plan said among their own fields."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypeVar

from rota.domain.events import TaskSubmitted
from rota.domain.plan import NO_PLAN

T = TypeVar("T", bound=Any)


def made(cls: type[T], *values: Any, **fields: Any) -> T:
    """Make one of `cls`; what is no field of its own is one of its plan."""
    return changed(cls(*values, **{n: v for n, v in fields.items() if n in cls._fields}), **fields)


def changed(one: T, **fields: Any) -> T:
    """Change fields of its own and of its plan."""
    own = {n: value for n, value in fields.items() if n in one._fields}
    wishes = {n: None if value is False else value for n, value in fields.items() if n not in own}
    if wishes:
        plan = (one.plan or NO_PLAN)._replace(**wishes)
        own["plan"] = None if plan == NO_PLAN and type(one) is TaskSubmitted else plan
    return one._replace(**own)  # type: ignore[no-any-return]


def flat(event: Any) -> Any:
    """Give an event as it lies on disk: a submission's plan is laid out among its own fields."""
    if type(event) is not TaskSubmitted:
        return event
    return SimpleNamespace(**event._asdict(), **(event.plan or NO_PLAN)._asdict())
