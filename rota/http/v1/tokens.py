"""/v1/tokens: make one, list them, take one back.

The secret is drawn here and goes out in one answer; what goes in is its hash. The first token of a
server that wants none yet must be an administrator's: from then on every request needs one.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import orjson

from rota import ids
from rota.clock import US_PER_MS, rfc3339
from rota.config import PAGE_BYTES_MAX, PAGE_ROWS_MAX
from rota.domain.tokens import ADMIN, ALL_AGENTS, SCOPED, NewToken, hash_of
from rota.errors import Conflict
from rota.http.models import TokenBody

if TYPE_CHECKING:
    from rota.domain.events import TokenCreated
    from rota.domain.tokens import Token
    from rota.http.call import Call


async def create(call: Call) -> Any:
    """POST /v1/tokens."""
    body = await call.body(TokenBody)
    access = call.app.access
    if body.role != ADMIN and access.is_open():
        msg = "the first token must be of role admin: from then on every request needs a token"
        raise Conflict(msg, code="admin_first", details={"field": "role"})
    wanted, secret = drawn(body)
    made = await call.bridge.create_token(wanted, access.names, call.by)
    return call.json(shown_once(made, secret), status=201)


def drawn(body: TokenBody) -> tuple[NewToken, str]:
    """Draw the secret of a token that is wanted; only its hash goes into the log."""
    secret = ids.token_secret()
    lifetime_us = None if body.expiresInMs is None else body.expiresInMs * US_PER_MS
    digest = hash_of(secret.encode())
    return NewToken(body.name, body.role, digest, tuple(body.agents), lifetime_us), secret


def shown_once(made: TokenCreated, secret: str) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": made.name, "principal": made.principal, "role": made.role}
    if made.agents is not None:
        shown["agents"] = made.agents
    if made.expires_at is not None:
        shown["expiresAt"] = rfc3339(made.expires_at)
    return {**shown, "token": secret}


async def list_all(call: Call) -> Any:
    """GET /v1/tokens."""
    limit = call.query_int("limit", default=PAGE_ROWS_MAX, low=1, high=PAGE_ROWS_MAX)
    after = call.query("cursor") or ""
    now = call.now()
    known = await call.sight.seen(lambda state: sorted(state.tokens.by_name.values()))
    start = bisect_right(known, after, key=lambda token: token.name)
    rows: list[orjson.Fragment] = []
    size, end = 0, start
    for token in known[start : start + limit]:
        text = orjson.dumps(view(token, now))
        rows.append(orjson.Fragment(text))
        size, end = size + len(text), end + 1
        if size > PAGE_BYTES_MAX:
            break
    body: dict[str, Any] = {"tokens": rows, "count": len(rows)}
    if end < len(known):
        body["nextCursor"] = known[end - 1].name
    return call.json(body)


def view(token: Token, now: int) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": token.name, "principal": token.principal, "role": token.role}
    if token.role in SCOPED:
        shown["agents"] = [ALL_AGENTS] if token.agents is None else sorted(token.agents)
    shown |= {"createdAt": rfc3339(token.created_at), "createdBy": token.by}
    if token.expires_at is not None:
        shown["expiresAt"] = rfc3339(token.expires_at)
        if not token.is_live(now):
            shown["expired"] = True
    return shown


async def revoke(call: Call) -> Any:
    """DELETE /v1/tokens/{id}: by its name."""
    name = await call.bridge.revoke_token(call.params["id"], call.by)
    return call.json({"name": name, "revoked": True})
