"""Bugs planted in how tokens are kept, one at a time, each of which the simulator must find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.planted import Plant, finds

from rota.actors import tokens
from rota.actors.messages import RevokeToken
from rota.actors.tokens import ABOUT_TOKENS
from rota.domain.events import TokenRevoked
from rota.domain.tokens import decide_creation
from rota.http.access import Caller
from rota.projections.tokens import Tokens

if TYPE_CHECKING:
    import pytest


def nothing(*_args: Any, **_more: Any) -> None:
    """Do nothing, instead of what should be done."""


def a_revoked_token_stays_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tokens, "on_revoked", nothing)


def any_agent_may_be_named(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Caller, "check_agents", nothing)


def a_name_may_be_taken_twice(patch: pytest.MonkeyPatch) -> None:
    def decide(wanted: Any, known: Any, taken: Any, now: int, seq: int) -> Any:
        del known
        return decide_creation(wanted, {}, taken, now, seq)

    patch.setattr(tokens, "decide_creation", decide)


def a_revocation_is_answered_and_not_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(ABOUT_TOKENS, RevokeToken, lambda _, message: TokenRevoked(message.name).name)


def a_snapshot_forgets_them(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tokens, "load", nothing)


PLANTS: list[Plant] = [
    a_revoked_token_stays_good,
    any_agent_may_be_named,
    a_name_may_be_taken_twice,
    a_revocation_is_answered_and_not_recorded,
    a_snapshot_forgets_them,
]

test_the_simulator_finds_the_bug = finds(PLANTS)
