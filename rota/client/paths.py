"""Where the native API has what a client asks for, and the small change of its requests."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rota.client.words import wire
from rota.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def path_of(noun: str, subject: str, verb: str = "", *more: str) -> str:
    """Give the path of one thing, or of what is to be done with it, or with what is in it.

    Raises InvalidRequest for what has no name.
    """
    if not all((subject, *more)):
        raise InvalidRequest(f"a name or id of {noun} must not be empty")
    path = f"/v1/{noun}/{quote(subject, safe='')}"
    rest = "".join(f"/{quote(each, safe='')}" for each in more)
    return f"{path}/{verb}{rest}" if verb else path


def path_of_pause(agent: str | None, action: str | None) -> str:
    """Name what is paused or resumed. Raises InvalidRequest."""
    if agent is not None and action is not None:
        msg = "an agent or a type can be paused, not both at once"
        raise InvalidRequest(msg, hint="pause one, then the other")
    if agent is not None:
        return path_of("agents", agent)
    return path_of("types", action) if action is not None else "/v1/scheduler"


def listed(words: str | Sequence[str] | None) -> str | None:
    """Write one or several words into a query."""
    return words if words is None or isinstance(words, str) else ",".join(words)


def said(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what was not said."""
    return {name: value for name, value in fields.items() if value is not None}


def keyed_body(fields: Mapping[str, Any], shape: Any, retries: int) -> dict[str, Any]:
    """Write a body that may be sent again: with a key of its own, if none was given.

    If it is not to be sent again (`retries` is 0), it gets none. Raises as `wire` does.
    """
    body = wire(said(fields), shape)
    if retries:
        body.setdefault("idempotencyKey", f"sdk-{secrets.token_hex(12)}")
    return body
