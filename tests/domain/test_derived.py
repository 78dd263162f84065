"""What rota submits itself: the task that follows a success, with what came of it in its params."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import START_US, assigned, given, started, submitted, succeeded

from rota.domain import events as e
from rota.domain.derived import (
    DERIVED_BYTES_MAX,
    FOLLOW_DEPTH_MAX,
    Place,
    circle_of,
    decide_follow_up,
)
from rota.domain.intake import Rules, TypeRules

RULE = {"type": "embed", "agent": "embedder", "params": {"n": "{{result.n}}", "of": "{{task.id}}"}}
PLACE = Place(lambda: "new", 4, START_US)


def rules(follow_up: dict[str, Any] | None = None, **types: TypeRules) -> Rules:
    return Rules(types={"echo": TypeRules(follow_up=follow_up or RULE), **types})


def follow(
    result: Any, under: Rules, place: Place = PLACE, **fields: Any
) -> tuple[e.TaskSubmitted | e.TaskFailed, ...]:
    """Give what follows the success of an echo with this result."""
    story = given(submitted(params={"p": 1}, **fields), assigned(), started())
    return decide_follow_up(story.task, succeeded(result=result), under, place)


def test_a_success_is_followed_by_one_task_with_what_came_of_it() -> None:
    (event,) = follow({"n": 7}, rules())
    assert isinstance(event, e.TaskSubmitted)
    assert (event.task, event.agent, event.action) == ("new", "embedder", "embed")
    assert (event.executor, event.position) == ("pull", 5)
    assert event.params == {"n": 7, "of": "t1"}
    assert event.plan is not None
    assert (event.plan.follows, event.plan.follow_depth) == ("t1", 1)


def test_nothing_follows_without_a_rule() -> None:
    assert follow({}, Rules()) == ()
    assert follow({}, Rules(types={"echo": TypeRules()})) == ()


def test_without_an_agent_it_is_the_same_ones() -> None:
    (event,) = follow({}, rules({"type": "embed"}))
    assert event.agent == "a1"


def test_it_is_of_the_workflow_of_what_it_follows() -> None:
    story = given(
        e.WorkflowSubmitted("wfl_1", 1), submitted(workflow="wfl_1"), assigned(), started()
    )
    (event,) = decide_follow_up(story.task, succeeded(result={"n": 1}), rules(), PLACE)
    assert isinstance(event, e.TaskSubmitted)
    assert event.plan is not None
    assert event.plan.workflow == "wfl_1"


def test_it_has_the_rules_of_its_own_type() -> None:
    (event,) = follow({"n": 1}, rules(embed=TypeRules(executor="model", timeout_ms=50)))
    assert isinstance(event, e.TaskSubmitted)
    assert (event.executor, event.timeout_ms) == ("model", 50)


def test_a_full_queue_does_not_refuse_it() -> None:
    (event,) = follow({"n": 1}, rules(), PLACE._replace(waiting=1_000_000))
    assert isinstance(event, e.TaskSubmitted)
    assert event.position == 1_000_001


def test_one_with_large_params_is_born_dead_while_what_waits_has_all_its_bytes() -> None:
    full = PLACE._replace(is_full=True)
    rest = len('{"n":"","of":"t1"}')
    (event,) = follow({"n": "x" * (DERIVED_BYTES_MAX - rest)}, rules(), full)
    assert isinstance(event, e.TaskSubmitted)
    large = {"n": "x" * (DERIVED_BYTES_MAX - rest + 1)}
    born, died = follow(large, rules(), full)
    assert isinstance(born, e.TaskSubmitted)
    assert born.params == RULE["params"]
    assert isinstance(died, e.TaskFailed)
    assert "maxQueueBytes" in died.error
    (event,) = follow(large, rules())  # there is room
    assert isinstance(event, e.TaskSubmitted)


@pytest.mark.parametrize("result", [None, {}, {"m": 1}, [1], "text"])
def test_one_whose_params_cannot_be_filled_in_is_born_dead(result: Any) -> None:
    born, died = follow(result, rules())
    assert isinstance(born, e.TaskSubmitted)
    assert isinstance(died, e.TaskFailed)
    assert (born.task, died.task, died.attempt) == ("new", "new", 0)
    assert died.code == "bad_params"
    assert "{{result.n}}" in died.error


def test_so_many_follow_one_another_and_no_more() -> None:
    (event,) = follow({"n": 1}, rules(), follows="t0", follow_depth=FOLLOW_DEPTH_MAX - 1)
    assert isinstance(event, e.TaskSubmitted)
    assert event.plan is not None
    assert event.plan.follow_depth == FOLLOW_DEPTH_MAX
    born, died = follow({"n": 1}, rules(), follows="t0", follow_depth=FOLLOW_DEPTH_MAX)
    assert isinstance(born, e.TaskSubmitted)
    assert isinstance(died, e.TaskFailed)
    assert (born.task, died.task, died.code) == ("new", "new", "follow_depth")
    assert born.plan is not None
    assert born.plan.follow_depth == FOLLOW_DEPTH_MAX + 1


def test_the_same_is_decided_again() -> None:
    assert follow({"n": 7}, rules()) == follow({"n": 7}, rules())


# -- circles -------------------------------------------------------------------------------------


def test_what_leads_back_to_itself_is_a_circle() -> None:
    assert circle_of({"a": "a"}) == ["a", "a"]
    assert circle_of({"a": "b", "b": "a"}) == ["a", "b", "a"]
    assert circle_of({"x": "a", "a": "b", "b": "a"}) == ["x", "a", "b", "a"]


def test_a_row_that_ends_is_none() -> None:
    assert circle_of({}) is None
    assert circle_of({"a": "b", "b": "c"}) is None
    assert circle_of({"a": "c", "b": "c"}) is None


def test_a_row_may_be_so_long_and_no_longer() -> None:
    row = {f"t{n}": f"t{n + 1}" for n in range(FOLLOW_DEPTH_MAX)}
    assert circle_of(row) is None
    longer = row | {f"t{FOLLOW_DEPTH_MAX}": f"t{FOLLOW_DEPTH_MAX + 1}"}
    assert circle_of(longer) is not None
