"""The tokens that were made and not taken back, by name and by the hash of their secret.

Their number and size are bounded by whoever decides (rota.domain.tokens). One that has expired
stays until its name is used again or room is needed, so that people see what became of it; whether
it is good at a moment is said by `find`. `changes` counts the facts: whoever knows the last count
knows whether to look again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain import tokens as domain
from rota.domain.tokens import Token, scope_of

if TYPE_CHECKING:
    from rota.domain import events as e
    from rota.domain.events import Record


_ROW_OF_OLD = 7
"""So many values a token has that acts as its name."""


class Tokens:
    """Every token that may be good."""

    def __init__(self) -> None:
        self.by_name: dict[str, Token] = {}
        self._by_hash: dict[str, Token] = {}
        self._size = 0
        self.changes = 0

    @property
    def is_used(self) -> bool:
        """Whether there has ever been a token, good or not any more."""
        return self.changes > 0

    def find(self, digest: str, now: int) -> Token | None:
        """Give the token of a secret, if it is good at this moment."""
        token = self._by_hash.get(digest)
        return token if token is not None and token.is_live(now) else None

    def on_created(self, record: Record[e.TokenCreated]) -> None:
        event = record.event
        size = self._size + domain.size_of(event.agents or ())
        if len(self.by_name) >= domain.TOKENS_MAX or size > domain.AGENTS_BYTES_MAX:
            for each in [t for t in self.by_name.values() if not t.is_live(record.at)]:
                self._drop(each.name)
        self._drop(event.name)
        self._add(
            Token(
                event.name,
                event.role,
                event.hash,
                scope_of(event.agents),
                record.at,
                event.expires_at,
                record.by,
                event.principal or event.name,
            )
        )
        self.changes += 1

    def on_revoked(self, record: Record[e.TokenRevoked]) -> None:
        self._drop(record.event.name)
        self.changes += 1

    def _add(self, token: Token) -> None:
        self.by_name[token.name] = self._by_hash[token.hash] = token
        self._size += token.size

    def _drop(self, name: str) -> None:
        token = self.by_name.pop(name, None)
        if token is not None:
            self._by_hash.pop(token.hash, None)
            self._size -= token.size

    def dump(self) -> dict[str, Any]:
        rows = [
            [
                *t[:3],
                None if t.agents is None else sorted(t.agents),
                *(t[4:] if t.principal != t.name else t[4:-1]),
            ]
            for t in self.by_name.values()
        ]
        return {"changes": self.changes, "rows": rows}

    def load(self, data: dict[str, Any]) -> None:
        self.changes = data["changes"]
        for row in data["rows"]:
            name, role, digest, agents, *rest = row if len(row) > _ROW_OF_OLD else [*row, row[0]]
            self._add(Token(name, role, digest, scope_of(agents), *rest))
