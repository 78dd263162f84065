"""The share that one caller has of a bound that all callers have together.

A caller may hold as much as is left free afterwards. So one caller alone can take half of a bound,
two a third each, and whoever comes next always finds room. A caller that holds nothing gets
whatever still fits. Every bound that callers share asks `may_take`; those that count in memory use
a `Shares`. Who a caller is says `Caller.share_for` (http/access.py): a token, or an agent where
there are no tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain.tokens import LOCAL

if TYPE_CHECKING:
    from collections.abc import Mapping


def share_of(by: str, agent: str) -> str:
    """Name whose share is taken by what somebody does for an agent.

    A token has a share of its own, whatever workers speak under it (`by_worker`, tokens.py). Where
    there are no tokens, an agent has one.
    """
    return f"agent {agent}" if by == LOCAL else f"token {by.partition('/')[0]}"


def may_take(own: int, total: int, amount: int, most: int) -> bool:
    """Say whether a caller that holds `own` of the `total` held may take `amount` more."""
    left = most - total - amount
    return left >= 0 and (own == 0 or own + amount <= left)


MINUTE_US = 60_000_000


class PerMinute:
    """How much callers take in a minute; with the next one it begins anew."""

    def __init__(self) -> None:
        self._minute = 0
        self._shares = Shares(0)

    def add(self, owner: str, amount: int, now: int) -> None:
        self._in(now).add(owner, amount)

    def wait_us(self, owner: str, most: int, now: int) -> int:
        """Say how long a caller has to wait for room in its share of `most`; 0 if there is some."""
        shares = self._in(now)
        shares.most = most
        return 0 if shares.has_room(owner) else MINUTE_US - now % MINUTE_US

    def _in(self, now: int) -> Shares:
        if now // MINUTE_US != self._minute:
            self._minute, self._shares = now // MINUTE_US, Shares(0)
        return self._shares


class Shares:
    """One bound: how much of it is held, and by whom. The sum of all shares is `held`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self._own: dict[str, int] = {}

    def own(self, owner: str) -> int:
        return self._own.get(owner, 0)

    def has_room(self, owner: str, amount: int = 1) -> bool:
        """Whether a caller's share has room for so much more."""
        return may_take(self.own(owner), self.held, amount, self.most)

    def have_room(self, amounts: Mapping[str, int]) -> bool:
        """Whether each of several callers has room for so much more, with the others' counted."""
        total = self.held + sum(amounts.values())
        return all(
            may_take(self.own(owner), total - amount, amount, self.most)
            for owner, amount in amounts.items()
        )

    def may_replace(self, owner: str, amount: int, was_of: str, was: int) -> bool:
        """Whether a caller's share has room for what takes the place of something else.

        What grows by nothing needs no room.
        """
        if owner == was_of and amount <= was:
            return True
        own = self.own(owner) - (was if owner == was_of else 0)
        return may_take(own, self.held - was, amount, self.most)

    def take(self, owner: str, amount: int = 1) -> bool:
        """Count what a caller takes; False, and nothing is counted, if its share has no room."""
        if not self.has_room(owner, amount):
            return False
        self.add(owner, amount)
        return True

    def add(self, owner: str, amount: int = 1) -> None:
        """Count what a caller holds, or with less than 0 lets go of, whatever it has room for."""
        left = self._own[owner] = self.own(owner) + amount
        assert left >= 0, f"{owner} gives back more than it took"
        self.held += amount
        if not left:
            del self._own[owner]

    def give_back(self, owner: str, amount: int = 1) -> None:
        """Count what a caller lets go of; a caller that holds nothing is forgotten."""
        self.add(owner, -amount)

    def largest(self) -> str | None:
        """Name the caller that holds most."""
        return max(self._own, key=self._own.__getitem__, default=None)
