"""Tokens of a server that does not run, made and revoked in its data folder.

The folder is opened as its server opens it, so that a running one keeps it. A token is decided as
the server decides it, and is one more record of the log, durable before it is printed.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rota.actors.recovery import rebuild_whole
from rota.clock import SystemClock
from rota.domain.events import Record
from rota.domain.tokens import LOCAL, decide_creation, decide_revocation
from rota.errors import LogLocked
from rota.eventlog import chain, codec
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.port import Stored
from rota.http import problems
from rota.http.models import TokenBody
from rota.http.v1.tokens import drawn, shown_once, view

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.domain.events import Event
    from rota.projections.state import State


def create(
    folder: Path, name: str, role: str, agents: tuple[str, ...], expires_ms: int | None
) -> dict[str, Any]:
    """Make a token. Raises a RotaError."""
    said = {"name": name, "role": role, "agents": list(agents), "expiresInMs": expires_ms}
    try:
        body = TokenBody.model_validate(said)
    except ValidationError as error:
        raise problems.invalid(error) from None
    wanted, secret = drawn(body)
    made: Any = _record(
        folder,
        lambda state, now: decide_creation(wanted, state.tokens.by_name, (), now, state.seq + 1),
    )
    return shown_once(made, secret)


def revoke(folder: Path, name: str) -> dict[str, Any]:
    """Take a token back. Raises a RotaError."""
    _check_there(folder)
    _record(folder, lambda state, _: decide_revocation(name, state.tokens.by_name))
    return {"name": name, "revoked": True}


def known(folder: Path) -> dict[str, Any]:
    """List the tokens; also of a server that runs. Raises a LogError."""
    with closing(LmdbLog(folder, readonly=True)) as log:
        state, _ = rebuild_whole(log)
    now = SystemClock().now_us()
    rows = [view(token, now) for token in sorted(state.tokens.by_name.values())]
    return {"tokens": rows, "count": len(rows)}


def _check_there(folder: Path) -> None:
    """Refuse a folder without a log, rather than make one. Raises a LogError."""
    LmdbLog(folder, readonly=True).close()


def _record(folder: Path, decide: Callable[[State, int], Event]) -> Event:
    """Decide something over the log, and add it. Raises a RotaError."""
    try:
        log = LmdbLog(folder)
    except LogLocked as error:
        error.hint = "it runs: leave out --data-dir, and give --url and --token instead"
        raise
    with closing(log):
        state, head = rebuild_whole(log)
        at = max(SystemClock().now_us(), state.at)
        event = decide(state, at)
        record = Record(head.seq + 1, at, event, LOCAL)
        state.apply(record)
        body = codec.encode(record)
        stored = Stored(record.seq, chain.extend(head.digest, body), body, None)
        log.append([stored], head.seq, log.claim())
    return event
