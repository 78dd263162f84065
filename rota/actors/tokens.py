"""What admission does about tokens: they are made and taken back by facts, as all else is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.domain.tokens import decide_creation, decide_revocation

if TYPE_CHECKING:
    from rota.actors import messages as m
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
