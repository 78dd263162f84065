"""What workers declare about the types that they serve, beside their functions.

A declaration says which retry policy, timeout and bound tasks of one type have, of one agent or of
every one (`EVERY_AGENT`), where neither they nor the configuration say. It is for the agents that
its token is for, and for tasks that workers come for. It is its token's: another token cannot
change it as long as that one is good. Saying the same again is no news.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain.server_events import TypeDeclared
from rota.domain.shares import Shares, share_of
from rota.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from rota.domain.tokens import Token

EVERY_AGENT = "*"
DECLARED_MAX = 10_000
"""How many declarations there may be, and how much of memory they may take."""
DECLARED_BYTES_MAX = 8 << 20
_ROW_BYTES = 300

Key = tuple[str, str]
"""An agent, or `EVERY_AGENT`, and a type."""


class Declared(NamedTuple):
    """What holds for tasks of a type, by whose token; `retry` is a `RetryPolicy` written out."""

    by: str
    retry: dict[str, Any] | None = None
    timeout_ms: int | None = None
    max_concurrent: int | None = None

    @property
    def says_nothing(self) -> bool:
        return self[1:] == NOTHING


NOTHING = (None, None, None)
NOT_DECLARED = ("", Declared(""))


def key_of(event: TypeDeclared) -> Key:
    return event.agent or EVERY_AGENT, event.type


def size_of(key: Key, declared: Declared) -> int:
    """Say about how much of memory a declaration takes; a character may take four bytes."""
    words = (*key, declared.by, *((declared.retry or {}).get("retry_on") or ()))
    return _ROW_BYTES + sum(4 * len(word) + 50 for word in words)


class Declarations:
    """Every declaration that is in force, and whose share of the room it takes."""

    def __init__(self) -> None:
        self.by_key: dict[Key, Declared] = {}
        self.count = Shares(DECLARED_MAX)
        self.bytes = Shares(DECLARED_BYTES_MAX)
        self.caps: dict[str, int] = {}
        """How many tasks may be in flight under a limit, by its name (`limit_of`)."""

    def of(self, agent: str, action: str) -> tuple[str, Declared]:
        """Give for whom something was declared that holds for such tasks, and what it is."""
        for each in (agent, EVERY_AGENT):
            found = self.by_key.get((each, action))
            if found is not None:
                return each, found
        return NOT_DECLARED

    def put(self, key: Key, declared: Declared) -> None:
        """Let a declaration hold instead of the one before it; an empty one holds nothing."""
        old = self.by_key.pop(key, None)
        if old is not None:
            self._count(key, old, -1)
            self.caps.pop(limit_of(*key), None)
        if declared.says_nothing:
            return
        self.by_key[key] = declared
        self._count(key, declared, 1)
        if declared.max_concurrent is not None:
            self.caps[limit_of(*key)] = declared.max_concurrent

    def _count(self, key: Key, declared: Declared, sign: int) -> None:
        owner = owner_of(key, declared.by)
        self.count.add(owner, sign)
        self.bytes.add(owner, sign * size_of(key, declared))


def limit_of(agent: str, action: str) -> str:
    """Name the limit that holds back what was declared for an agent, or for every one."""
    return f"declared:{agent}\n{action}"


def owner_of(key: Key, by: str) -> str:
    return share_of(by, key[0])


def decide_declarations(
    said: Mapping[Key, Declared], known: Declarations, is_good: Callable[[str], bool]
) -> tuple[list[TypeDeclared], list[bool]]:
    """Decide which declarations are news, and of each whether it holds. Raises QueueFull.

    What another token declared that `is_good` still is left as it is. What one declared that is
    not holds until somebody says otherwise, or there is no room.
    """
    news: list[Key] = []
    holds: list[bool] = []
    for key, wanted in said.items():
        old = known.by_key.get(key, Declared(wanted.by))
        is_theirs = old.by != wanted.by and is_good(old.by)
        holds.append(not is_theirs or old[1:] == wanted[1:])
        if not is_theirs and old[1:] != wanted[1:]:
            news.append(key)
    left: list[Key] = []
    if not _has_room(news, known, said):
        callers = {wanted.by for wanted in said.values()}
        left = [
            key
            for key, each in known.by_key.items()
            if key not in said and each.by not in callers and not is_good(each.by)
        ]
        rest = Declarations()
        for key in known.by_key.keys() - set(left):
            rest.put(key, known.by_key[key])
        if not _has_room(news, rest, said):
            msg = f"workers may declare {DECLARED_MAX} types, and you have your share of that"
            raise QueueFull(msg, code="too_many_declarations")
    gone = [_event_of(key, Declared("")) for key in left]
    return [*gone, *(_event_of(key, said[key]) for key in news)], holds


def _event_of(key: Key, declared: Declared) -> TypeDeclared:
    agent, action = key
    return TypeDeclared("" if agent == EVERY_AGENT else agent, action, *declared[1:])


def _has_room(news: Iterable[Key], known: Declarations, said: Mapping[Key, Declared]) -> bool:
    """Whether their callers' shares have room for these, less what they take the place of."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for key in news:
        old, owner = known.by_key.get(key), owner_of(key, said[key].by)
        is_own = old is not None and owner_of(key, old.by) == owner
        before = size_of(key, old) if old is not None and is_own else 0
        counts[owner] = counts.get(owner, 0) + (not is_own)
        sizes[owner] = sizes.get(owner, 0) + size_of(key, said[key]) - before
    return known.count.have_room(_grown(counts)) and known.bytes.have_room(_grown(sizes))


def _grown(amounts: Mapping[str, int]) -> dict[str, int]:
    return {owner: amount for owner, amount in amounts.items() if amount > 0}


def is_good(by: str, tokens: Mapping[str, Token], taken: Collection[str], now: int) -> bool:
    """Whether the token that declared something is good still; `taken` are the configuration's.

    Without a token nobody keeps anything for long: there is one caller, or there are tokens now.
    """
    known = tokens.get(by.partition("#")[0])
    return by in taken or (known is not None and known.principal == by and known.is_live(now))
