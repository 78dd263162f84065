"""Who may do what: roles, tokens, and the decisions to make one and to take one back.

A role is a set of rights; a route asks for one right. Tokens of the roles in `SCOPED` are for some
agents and see nothing of the others. Only the hash of a token's secret is ever recorded: the secret
is as long as the hash, and drawn by chance, so that it cannot be guessed from it.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from rota.domain.server_events import TokenCreated, TokenRevoked
from rota.errors import Conflict, InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

LOCAL = "local"
"""Who asks without a token, where none is wanted."""
ROTA = "rota"
"""Who decides what nobody asked for."""
RESERVED = frozenset({LOCAL, ROTA})
ALL_AGENTS = "*"
TOKENS_MAX = 10_000
TOKEN_AGENTS_MAX = 100
AGENTS_IN_ALL_MAX = 100_000
"""How many agents the tokens of a log may name together."""
AGENTS_BYTES_MAX = 32 << 20
"""And how much of memory those names may take."""
_NAME_BYTES = 100
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}"


class Right(StrEnum):
    """What a route asks of its caller."""

    SUBMIT = "submit"
    """Submit tasks; cancel and retry them."""
    WORK = "work"
    """Take tasks, say what became of them, and add to their logs."""
    SEE = "see"
    """Look at tasks, and at what was recorded of them."""
    ORCHESTRATE = "orchestrate"
    """Make and end workflows, and give the dead new lives."""
    MEASURE = "measure"
    """Read the figures of each day."""
    OVERSEE = "oversee"
    """Look at the scheduler as a whole."""
    MANAGE = "manage"
    """Everything else: pauses, limits, tokens."""


SUBMIT, WORK, ORCHESTRATE, ANALYSE = "submit", "work", "orchestrate", "analyse"
AUDIT, ADMIN = "audit", "admin"

ROLES: dict[str, frozenset[Right]] = {
    SUBMIT: frozenset({Right.SUBMIT, Right.SEE}),
    WORK: frozenset({Right.WORK, Right.SEE}),
    ORCHESTRATE: frozenset({Right.SUBMIT, Right.SEE, Right.ORCHESTRATE}),
    ANALYSE: frozenset({Right.MEASURE}),
    AUDIT: frozenset({Right.SEE, Right.OVERSEE, Right.MEASURE}),
    ADMIN: frozenset(Right),
}
SCOPED = (SUBMIT, WORK, ANALYSE)
"""The roles whose tokens are for the agents that they name."""


class Token(NamedTuple):
    """A token that was made and not taken back; `agents` is None if it is for all of them."""

    name: str
    role: str
    hash: str
    agents: frozenset[str] | None
    created_at: int
    expires_at: int | None
    by: str
    principal: str
    """Who acts when it is used: it alone, also if its name is used again."""

    def is_live(self, now: int) -> bool:
        return self.expires_at is None or now < self.expires_at

    @property
    def size(self) -> int:
        return size_of(self.agents or ())


class NewToken(NamedTuple):
    """What somebody wants a token to be; `lifetime_us` is None if it is to last."""

    name: str
    role: str
    hash: str
    agents: tuple[str, ...] = ()
    lifetime_us: int | None = None


def by_worker(caller: str, worker: str | None) -> str:
    """Say who speaks when a worker does: a name that is its own to choose is no proof of it.

    So a token's principal comes first, and no token's name has a stroke or a hash sign in it. Where
    nobody has a token there is nobody to be taken for but `RESERVED`, and so no worker is called.
    """
    if not worker:
        return caller
    return worker if caller == LOCAL else f"{caller}/{worker}"


def hash_of(secret: bytes) -> str:
    return blake2b(secret, digest_size=32).hexdigest()


def size_of(agents: Collection[str]) -> int:
    """Say about how much of memory names take; a character may take four bytes."""
    return _NAME_BYTES * len(agents) + 4 * sum(map(len, agents))


def scope_of(agents: Iterable[str] | None) -> frozenset[str] | None:
    """Give the agents that a token is for; None is all of them."""
    found = frozenset(agents) if agents is not None else None
    return None if found is None or ALL_AGENTS in found else found


def decide_creation(
    wanted: NewToken, tokens: Mapping[str, Token], taken: Collection[str], now: int, seq: int
) -> TokenCreated:
    """Make a token, beside those there are and names that are `taken`. Raises a RequestError.

    `seq` is that of its record: its principal is called by it, so a name that is used again does
    not meet the keys that the token before it had.
    """
    if wanted.role not in ROLES:
        raise _bad("role", f"must be one of {', '.join(ROLES)}")
    if wanted.role in SCOPED and not wanted.agents:
        raise _bad("agents", f"a token to {wanted.role} names the agents it is for; '*' is all")
    if wanted.role not in SCOPED and wanted.agents:
        raise _bad("agents", f"a token of role {wanted.role} is not limited to agents")
    name = wanted.name
    if name in RESERVED:
        raise _taken(name, f"'{name}' is what rota calls callers itself")
    if name in taken:
        raise _taken(name, f"the configuration has a token '{name}'")
    known = tokens.get(name)
    if known is not None and known.is_live(now):
        raise _taken(name, f"there is a token '{name}' already")
    others = [t for t in tokens.values() if t.is_live(now)]
    agents = sorted(set(wanted.agents)) or None
    _check_room(agents or (), others)
    expires_at = None if wanted.lifetime_us is None else now + wanted.lifetime_us
    principal = f"{name}#{seq}"
    return TokenCreated(name, wanted.role, wanted.hash, agents, expires_at, principal)


def _check_room(agents: Collection[str], others: Collection[Token]) -> None:
    """Refuse a token more than there may be beside others. Raises Conflict."""
    if len(others) >= TOKENS_MAX:
        msg = f"there are as many tokens as there may be: {TOKENS_MAX}"
    elif len(agents) + sum(len(t.agents or ()) for t in others) > AGENTS_IN_ALL_MAX:
        msg = f"tokens would name more than {AGENTS_IN_ALL_MAX} agents together"
    elif size_of(agents) + sum(t.size for t in others) > AGENTS_BYTES_MAX:
        msg = f"the agents that tokens name would take more than {AGENTS_BYTES_MAX} bytes"
    else:
        return
    raise Conflict(msg, code="too_many_tokens", hint="revoke some")


def decide_revocation(name: str, tokens: Mapping[str, Token]) -> TokenRevoked:
    """Take a token back. Raises NotFound."""
    if name not in tokens:
        raise NotFound("token not found")
    return TokenRevoked(name)


def _bad(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"field '{field}': {problem}", details={"field": field})


def _taken(name: str, problem: str) -> Conflict:
    return Conflict(problem, code="name_taken", details={"field": "name", "name": name})
