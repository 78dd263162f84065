"""What admission does about tokens: they are made and taken back by facts, as all else is.

Also what workers declare under them about the types that they serve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors import messages as m
from rota.domain.declared import decide_declarations, is_good
from rota.domain.tokens import decide_creation, decide_revocation

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.actors.journal import Journal
    from rota.domain.events import TokenCreated


def create_token(journal: Journal, message: m.CreateToken) -> TokenCreated:
    """Make a token. Raises a RequestError."""
    journal.check_open()
    now, tokens = journal.now(), journal.state.tokens.by_name
    event = decide_creation(message.wanted, tokens, message.taken, now, journal.state.seq + 1)
    journal.record(event, by=message.by, at=now)
    return event


def revoke_token(journal: Journal, message: m.RevokeToken) -> str:
    """Take a token back. Raises NotFound."""
    journal.check_open()
    event = decide_revocation(message.name, journal.state.tokens.by_name)
    journal.record(event, by=message.by)
    return event.name


def declare_types(journal: Journal, message: m.DeclareTypes) -> list[bool]:
    """Keep what a worker declares; say of each whether it holds. Raises QueueFull."""
    for agent in {agent for agent, _ in message.said}:
        journal.check_room(message.by, agent)
    now, state = journal.now(), journal.state
    events, holds = decide_declarations(
        message.said,
        state.control.declared,
        lambda by: is_good(by, state.tokens.by_name, message.taken, now),
    )
    if events:
        journal.record(*events, by=message.by, at=now)
    return holds


ABOUT_TOKENS: dict[type[Any], Callable[[Journal, Any], Any]] = {
    m.CreateToken: create_token,
    m.RevokeToken: revoke_token,
    m.DeclareTypes: declare_types,
}
