"""New lives for what a failure took with it: who may come back, and what each waits for then."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import (
    Given,
    assigned,
    cancelled,
    failed,
    given,
    revived,
    started,
    submitted,
    succeeded,
)

from rota.domain import events as e
from rota.domain.attempts import REVIVALS_MAX
from rota.domain.dead import decide_return, is_doomed
from rota.domain.dependencies import DOOMED
from rota.errors import Conflict


def story(*before: e.Event, parents: tuple[str, ...] = ("p1",), **fields: Any) -> Given:
    """t1 depended on these parents, and was cancelled because one of them failed."""
    depends = {parent: parent for parent in parents}
    child = submitted(depends=depends, waits=list(parents), **fields)
    return given(
        *(submitted(parent) for parent in parents),
        child,
        *before,
        cancelled(was="blocked", reason="a dependency failed", code=DOOMED),
    )


def fails(task: str) -> tuple[e.Event, ...]:
    return assigned(task), started(task), failed(task)


def works(task: str) -> tuple[e.Event, ...]:
    return assigned(task), started(task), succeeded(task)


def returning(found: Given, *alive: str) -> tuple[e.Event, ...]:
    return decide_return(found.task, found.state.tasks.get, found.now, alive)


def test_only_what_a_failed_dependency_cancelled_is_doomed() -> None:
    assert is_doomed(story(*fails("p1")).task)
    assert not is_doomed(given(submitted(), cancelled()).task)
    assert not is_doomed(given(submitted(), *fails("t1")).task)
    assert not is_doomed(given(submitted()).task)


def test_it_waits_again_for_what_is_revived_with_it() -> None:
    found = story(*fails("p1"))
    assert returning(found, "p1") == (e.TaskRevived("t1", "a1", waits=["p1"]),)


def test_it_waits_for_what_lives_and_not_for_what_has_succeeded() -> None:
    found = story(*works("p1"), *fails("p2"), parents=("p1", "p2", "p3"))
    assert returning(found, "p2") == (e.TaskRevived("t1", "a1", waits=["p2", "p3"]),)


def test_with_nothing_to_wait_for_it_is_released_at_once() -> None:
    found = story(*fails("p1"))
    found.state.apply(e.Record(found.state.seq + 1, found.now, revived("p1")))
    for event in (assigned("p1", attempt=2), started("p1", attempt=2), succeeded("p1", attempt=2)):
        found.state.apply(e.Record(found.state.seq + 1, found.now, event))
    assert returning(found) == (
        e.TaskRevived("t1", "a1", waits=[]),
        e.TaskReleased("t1", "a1", "dependencies"),
    )


def test_a_parent_that_nobody_knows_is_waited_for() -> None:
    found = given(
        submitted(depends={"gone": "gone"}, waits=["gone"]),
        cancelled(was="blocked", reason="a dependency failed", code=DOOMED),
    )
    assert returning(found) == (e.TaskRevived("t1", "a1", waits=["gone"]),)


def test_it_stays_dead_while_a_parent_is() -> None:
    found = story(*fails("p1"), parents=("p1", "p2"))
    with pytest.raises(Conflict, match="its dependency p1 is failed") as caught:
        returning(found, "p2")
    assert caught.value.code == DOOMED
    assert caught.value.hint == "revive p1 first"


@pytest.mark.parametrize(
    "events",
    [
        (submitted(),),
        (submitted(), cancelled()),
        (submitted(), *fails("t1")),
        (submitted(), *works("t1")),
    ],
)
def test_what_was_not_cancelled_by_that_does_not_return(events: tuple[e.Event, ...]) -> None:
    with pytest.raises(Conflict, match="only what a failed dependency has cancelled"):
        returning(given(*events))


def test_the_rules_of_a_revival_hold() -> None:
    late = story(*fails("p1"), deadline=1)
    with pytest.raises(Conflict) as caught:
        returning(late, "p1")
    assert caught.value.code == "deadline_passed"
    often = story(*fails("p1"))
    often.task.revivals = REVIVALS_MAX
    with pytest.raises(Conflict) as caught:
        returning(often, "p1")
    assert caught.value.code == "too_many_retries"
