"""What stands where a failed log has left nothing to work with.

While nothing can be recorded a `Door` stands in for every actor, and `Unreadable` for a state that
is no longer the log's. Whoever comes is refused at once, and nobody waits for what cannot come.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from rota.actors.runtime import CooperativeActor
from rota.errors import StorageUnavailable

if TYPE_CHECKING:
    from rota.actors.runtime import Runtime
    from rota.projections.state import State


class Door(CooperativeActor):
    """Stands in for every actor while nothing can be recorded: whoever asks is refused."""

    def __init__(self, runtime: Runtime, failure: StorageUnavailable) -> None:
        super().__init__(runtime)
        self._failure = failure
        self.running: dict[str, Any] = {}

    def on_receive(self, message: Any) -> None:
        """Refuse, if anybody waits for an answer."""
        reply = getattr(message, "reply", None)
        if reply is not None:
            reply.fail(self._failure)

    def abort_all(self, reason: str) -> list[str]:
        """Nothing runs."""
        del reason
        return []


class Unreadable:
    """Stands in for a state that is no longer the log's: looking at it raises."""

    def __init__(self, failure: StorageUnavailable) -> None:
        self.__failure = failure

    def __getattr__(self, name: str) -> Any:
        """Give nothing: what was there may have been taken back."""
        del name
        raise StorageUnavailable(self.__failure.message, hint=self.__failure.hint)


def let_go(state: State) -> None:
    """Empty a state one thing at a time: letting go of it at once would hold up the loop."""
    for projection in reversed(list(vars(state).values())):
        for held in reversed(list(getattr(projection, "__dict__", {}).values())):
            while held and isinstance(held, (dict, list, deque, set)):
                if isinstance(held, dict):
                    held.popitem()
                else:
                    held.pop()
