"""Tokens are known by the hash of their secret, until they are revoked or their name is used again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.builders import fold, records_of

from rota.domain import events as e
from rota.domain import tokens as domain
from rota.projections import keys
from rota.projections.state import State

if TYPE_CHECKING:
    import pytest

FAR = 1 << 60


def after(*events: Any) -> State:
    return fold(records_of([*events]))


def made(name: str, digest: str, *rest: Any) -> e.TokenCreated:
    return e.TokenCreated(name, "submit", digest, ["ann"], *rest)


def test_a_token_is_found_by_its_hash_until_it_is_revoked() -> None:
    state = after(made("a", "h"))
    found = state.tokens.find("h", FAR)
    assert found is not None
    assert (found.name, found.role, found.agents) == ("a", "submit", frozenset({"ann"}))
    state = after(made("a", "h"), e.TokenRevoked("a"))
    assert state.tokens.find("h", 0) is None
    assert state.tokens.is_used
    assert not state.tokens.by_name


def test_an_expired_token_is_not_found_and_is_still_listed() -> None:
    state = after(made("a", "h", 500))
    assert state.tokens.find("h", 499) is not None
    assert state.tokens.find("h", 500) is None
    assert "a" in state.tokens.by_name


def test_a_name_that_is_used_again_has_one_secret() -> None:
    state = after(made("a", "old", 1), made("a", "new"))
    assert state.tokens.find("old", 0) is None
    assert state.tokens.find("new", FAR) is not None


def test_the_expired_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "TOKENS_MAX", 2)
    state = after(made("a", "1", 1), made("b", "2"), made("c", "3"))
    assert sorted(state.tokens.by_name) == ["b", "c"]


def test_the_expired_make_room_for_names_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "AGENTS_BYTES_MAX", 2 * domain.size_of(["ann"]))
    state = after(made("a", "1", 1), made("b", "2"), made("c", "3"))
    assert sorted(state.tokens.by_name) == ["b", "c"]


def test_to_revoke_what_nobody_has_is_folded_too() -> None:
    assert not after(e.TokenRevoked("nobody")).tokens.by_name


def test_a_snapshot_brings_them_back() -> None:
    state = after(made("a", "h", FAR), e.TokenCreated("b", "admin", "i"), e.TokenRevoked("b"))
    again = State.load(state.dump())
    assert again.digest() == state.digest()
    assert again.tokens.find("h", 0) == state.tokens.find("h", 0)
    assert again.tokens.changes == 3


def test_who_asks_without_a_token_keeps_the_keys_of_when_it_had_no_name() -> None:
    assert keys.idempotency("local", "k") == keys.idempotency("", "k")
    assert keys.dedup("local", "k") == keys.dedup("", "k")
    assert keys.dedup("rota", "k") != keys.dedup("", "k") != keys.dedup("ops", "k")
