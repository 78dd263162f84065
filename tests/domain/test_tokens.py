"""Who may do what is decided purely: roles, new tokens, and tokens that are taken back."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain import tokens as domain
from rota.domain.events import TokenCreated, TokenRevoked
from rota.domain.tokens import (
    ROLES,
    NewToken,
    Right,
    Token,
    decide_creation,
    decide_revocation,
    hash_of,
    scope_of,
)
from rota.errors import Conflict, InvalidRequest, NotFound, RotaError

NOW = 1_000_000


def token(name: str, role: str = "admin", **fields: Any) -> Token:
    usual = {"agents": None, "created_at": 1, "expires_at": None, "by": "local", "principal": name}
    return Token(name, role, hash_of(name.encode()), **{**usual, **fields})


def known(*tokens: Token) -> dict[str, Token]:
    return {each.name: each for each in tokens}


def refused(wanted: NewToken, tokens: dict[str, Token] | None = None, taken: Any = ()) -> RotaError:
    with pytest.raises(RotaError) as caught:
        decide_creation(wanted, tokens or {}, taken, NOW, 7)
    return caught.value


def test_a_role_may_do_what_the_table_says() -> None:
    assert ROLES["admin"] == set(Right)
    assert ROLES["audit"] == {Right.SEE, Right.OVERSEE, Right.MEASURE}
    assert ROLES["orchestrate"] == {Right.SUBMIT, Right.SEE, Right.ORCHESTRATE}
    assert ROLES["analyse"] == {Right.MEASURE}
    assert ROLES["submit"] == {Right.SUBMIT, Right.SEE}
    assert ROLES["work"] == {Right.WORK, Right.SEE}


def test_only_admin_manages() -> None:
    assert [role for role, rights in ROLES.items() if Right.MANAGE in rights] == ["admin"]


def test_a_token_is_made_with_its_agents_once_each_and_its_end() -> None:
    wanted = NewToken("ann", "submit", "h", ("b", "a", "b"), 5_000_000)
    made = decide_creation(wanted, {}, (), NOW, 7)
    assert made == TokenCreated("ann", "submit", "h", ["a", "b"], NOW + 5_000_000, "ann#7")


@pytest.mark.parametrize("role", ["audit", "admin"])
def test_who_sees_everything_is_not_for_some_agents(role: str) -> None:
    made = decide_creation(NewToken("x", role, "h"), {}, (), NOW, 7)
    assert made == TokenCreated("x", role, "h", principal="x#7")
    error = refused(NewToken("x", role, "h", ("a",)))
    assert isinstance(error, InvalidRequest)
    assert error.details["field"] == "agents"


@pytest.mark.parametrize("role", ["submit", "work"])
def test_who_submits_or_works_names_agents(role: str) -> None:
    assert refused(NewToken("x", role, "h")).details["field"] == "agents"
    assert decide_creation(NewToken("x", role, "h", ("*",)), {}, (), NOW, 7).agents == ["*"]


def test_an_unknown_role_is_refused() -> None:
    assert refused(NewToken("x", "root", "h")).details["field"] == "role"


@pytest.mark.parametrize("name", ["local", "rota"])
def test_names_that_rota_uses_itself_are_taken(name: str) -> None:
    assert refused(NewToken(name, "admin", "h")).code == "name_taken"


def test_a_name_is_one_live_tokens() -> None:
    wanted = NewToken("ann", "admin", "h")
    assert refused(wanted, known(token("ann"))).code == "name_taken"
    assert refused(wanted, taken={"ann"}).code == "name_taken"
    expired = known(token("ann", expires_at=NOW))
    assert decide_creation(wanted, expired, (), NOW, 7).name == "ann"


def test_there_are_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "TOKENS_MAX", 2)
    monkeypatch.setattr(domain, "AGENTS_IN_ALL_MAX", 3)
    wanted = NewToken("c", "submit", "h", ("x", "y"))
    two = known(token("a"), token("b"))
    assert isinstance(refused(wanted, two), Conflict)
    assert refused(wanted, two).code == "too_many_tokens"
    one_expired = known(token("a", expires_at=5), token("b"))
    assert decide_creation(wanted, one_expired, (), NOW, 7)
    many = known(token("a", agents=frozenset("pq")))
    assert refused(wanted, many).code == "too_many_tokens"


def test_the_agents_they_name_take_only_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "AGENTS_BYTES_MAX", 2 * (100 + 4 * 200))
    long = NewToken("b", "submit", "h", ("x" * 200,))
    assert decide_creation(long, known(token("a", agents=frozenset({"y" * 200}))), (), NOW, 7)
    full = known(token("a", agents=frozenset({"y" * 200, "z"})))
    assert refused(long, full).code == "too_many_tokens"


def test_what_is_not_there_cannot_be_revoked() -> None:
    assert decide_revocation("ann", known(token("ann"))) == TokenRevoked("ann")
    with pytest.raises(NotFound):
        decide_revocation("bob", known(token("ann")))


@pytest.mark.parametrize(
    ("agents", "scope"), [(None, None), (["*"], None), (["a", "*"], None), (["a"], {"a"})]
)
def test_a_star_is_all_agents(agents: list[str] | None, scope: set[str] | None) -> None:
    assert scope_of(agents) == scope


def test_a_token_is_good_until_the_very_moment_it_expires() -> None:
    assert token("a", expires_at=NOW + 1).is_live(NOW)
    assert not token("a", expires_at=NOW).is_live(NOW)
    assert token("a").is_live(1 << 62)
