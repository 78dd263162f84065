"""The tokens of a log, for whoever stands at the door: is this secret good, and is it still.

A token is looked up by the hash of its secret, as it is at this moment by the clock. While the
state is being rebuilt nobody can tell, and asking raises StorageUnavailable: no token is taken for
unknown, and no door for open, because a disk fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.actors.system import Shard
    from rota.domain.tokens import Token


class Passes:
    """The tokens of one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    @property
    def changes(self) -> int:
        """How many facts about tokens there are; none, if there has never been a token."""
        return self._shard.state.tokens.changes

    def find(self, digest: str) -> Token | None:
        """Give the token of a secret, if it is good now. Raises StorageUnavailable."""
        tokens = self._shard.state.tokens
        if not tokens.changes:
            return None
        self._shard.timekeeper.look()
        return tokens.find(digest, self._shard.journal.now())

    def left_us(self, digest: str) -> int | None:
        """Say how long a token is still good: 0 if it is not, None if it does not expire."""
        token = self.find(digest)
        if token is None:
            return 0
        if token.expires_at is None:
            return None
        return max(1, token.expires_at - self._shard.journal.now())
