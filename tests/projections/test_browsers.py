"""A browser is held from the success of its start to that of its stop, and counted once."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import fold, records_of

from rota.domain import events as e
from rota.domain.browsers import REACHED, REACHED_CODE, browser_of, decide_browser
from rota.domain.commands import Limits
from rota.domain.plan import Plan
from rota.projections.control import limits_to
from rota.projections.state import State


def begun(most: int) -> e.ServerStarted:
    return e.ServerStarted("1", limits_to(Limits(browsers=most)))


def job(task: str, action: str, profile: str | None = None) -> list[Any]:
    """A job that is given its slot."""
    made = e.TaskSubmitted(task, "bm", action, "web", 1, plan=Plan(key=profile))
    return [made, e.TaskAssigned(task, "bm", 1), e.TaskStarted(task, "bm", 1)]


def done(task: str, action: str, profile: str | None = None) -> list[Any]:
    return [*job(task, action, profile), e.TaskSucceeded(task, "bm", 1)]


def after(*events: Any, most: int = 2) -> State:
    return fold(records_of([begun(most), *events]))


def test_a_start_holds_and_a_stop_of_its_profile_lets_go() -> None:
    state = after(*done("1", "browser_start", "a"), *done("2", "browser_start", "b"))
    assert list(state.browsers.held) == ["p:a", "p:b"]
    state = after(*done("1", "browser_start", "a"), *done("2", "browser_stop", "a"))
    assert not state.browsers.held
    both = [*done("1", "browser_start", "a"), *done("2", "browser_start", "b")]
    assert after(*both).browsers.count == 2
    assert after(*both, *done("3", "browser_stop_all")).browsers.count == 0


def test_a_start_under_way_is_counted_until_it_ends_however_it_ends() -> None:
    state = after(*job("1", "browser_start", "a"))
    assert (state.browsers.count, len(state.browsers.held)) == (1, 0)
    for end in (
        e.TaskFailed("1", "bm", 1, "c", "e"),
        e.AttemptFailed("1", "bm", 1, "c", "e", 5),
        e.AttemptInterrupted("1", "bm", 1, "r"),
        e.TaskCancelled("1", "bm", "running"),
    ):
        state = after(*job("1", "browser_start", "a"), end)
        assert (state.browsers.count, state.browsers.has("p:a")) == (0, False)


def test_a_start_without_a_profile_holds_a_place_only_while_it_runs() -> None:
    assert after(*job("1", "browser_start")).browsers.count == 1
    assert after(*done("1", "browser_start")).browsers.count == 0


def test_a_profile_is_one_browser_however_often_it_is_started() -> None:
    state = after(*done("1", "browser_start", "a"), *job("2", "browser_start", "a"))
    assert state.browsers.count == 1


def test_without_a_bound_nothing_is_held() -> None:
    assert not after(*done("1", "browser_start", "a"), most=0).browsers.held


def test_a_snapshot_has_them_and_the_starts_under_way() -> None:
    state = after(*done("1", "browser_start", "a"), *job("2", "browser_start", "b"))
    again = State.load(state.dump())
    assert again.digest() == state.digest()
    assert (again.browsers.count, again.browsers.held) == (2, state.browsers.held)
    assert again.browsers.most == 2


@pytest.mark.parametrize(
    ("action", "profile", "most", "refused"),
    [
        ("browser_start", "c", 2, True),
        ("browser_start", None, 2, True),
        ("browser_start", "a", 2, False),
        ("browser_start", "c", 3, False),
        ("browser_start", "c", 0, False),
        ("browser_stop", "c", 2, False),
        ("script_run", "c", 2, False),
    ],
)
def test_a_start_is_refused_only_when_there_is_no_place(
    action: str, profile: str | None, most: int, *, refused: bool
) -> None:
    events = [*done("1", "browser_start", "a"), *done("2", "browser_start", "b")]
    state = after(*events, e.TaskSubmitted("3", "bm", action, "web", 1, plan=Plan(key=profile)))
    task = state.tasks.by_id["3"]
    event = decide_browser(task, state.browsers, most)
    assert (event is not None) == refused
    if event is not None:
        assert (event.code, event.error) == (REACHED_CODE, REACHED)
        assert browser_of(task) == ("p:c" if profile else "t:3")
