"""Intake: a request and the rules of its type become a command."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.wishes import changed, made

from rota.config import parse_settings
from rota.domain.commands import SubmitTask
from rota.domain.intake import (
    NO_RULES,
    BatchRequest,
    Request,
    Rules,
    TimeoutTooLong,
    TypeRules,
    Usual,
    take_in,
    take_in_batch,
)
from rota.domain.plan import DEADLINE_S_MAX, NO_PLAN, Plan
from rota.errors import InvalidRequest

NOW = 1_700_000_000_000_000
FAR = NOW + DEADLINE_S_MAX * 1_000_000
SCAN = TypeRules("web", 100, 1000, 5000, {"max_attempts": 3}, "fail")
RULES = Rules({"scan": SCAN}, tab="tabs", chat="chats")
ASKED = Request("ann", "scan")


def taken(**said: Any) -> SubmitTask:
    """What becomes of a scan that says so."""
    return take_in(changed(ASKED, **said), RULES, NOW)


def test_what_is_not_said_is_filled_in_by_the_rules_of_the_type() -> None:
    plan = Plan(queue_timeout_ms=5000, retry={"max_attempts": 3})
    expected = SubmitTask("ann", "scan", "web", timeout_ms=100, on_interrupt="fail", plan=plan)
    assert taken() == expected


def test_what_is_said_goes_before_the_rules() -> None:
    said = {"timeout_ms": 7, "on_interrupt": "retry", "queue_timeout_ms": 8, "executor": "mine"}
    command = taken(**said, retry={"max_attempts": 9}, priority=0)
    assert (command.timeout_ms, command.on_interrupt, command.priority) == (7, None, 0)
    assert command.executor == "mine"
    assert command.plan == Plan(queue_timeout_ms=8, retry={"max_attempts": 9})


def test_what_is_usual_comes_after_the_rules() -> None:
    usual = Usual(50, 500, {"max_attempts": 2}, deadline_ms=60_000)
    assert taken(usual=usual).timeout_ms == 100
    assert taken(usual=usual).plan.retry == {"max_attempts": 3}
    plain = take_in(Request("ann", "any", usual=usual), RULES, NOW)
    assert (plain.timeout_ms, plain.plan.retry) == (50, {"max_attempts": 2})
    assert plain.deadline == NOW + 60_000_000
    assert taken(usual=usual, deadline=NOW + 1).deadline == NOW + 1


def test_a_request_without_rules_stays_as_it_is() -> None:
    command = take_in(Request("ann", "any"), Rules(), NOW)
    assert command == SubmitTask("ann", "any", "pull")
    assert command.plan is NO_PLAN


def test_a_timeout_is_bounded_by_the_type_and_by_what_is_usual() -> None:
    assert taken(timeout_ms=1000).timeout_ms == 1000
    with pytest.raises(TimeoutTooLong, match="'timeoutMs': is more than 1000") as error:
        taken(timeout_ms=1001)
    assert error.value.details == {"field": "timeoutMs"}
    with pytest.raises(TimeoutTooLong, match="more than 500"):
        taken(timeout_ms=501, usual=Usual(timeout_ms_max=500))


def test_retries_change_the_policy_that_the_type_gives() -> None:
    assert taken(retries={"max_attempts": 5}).plan.retry == {"max_attempts": 5}
    assert taken(retries={"base_ms": 7}).plan.retry == {"max_attempts": 3, "base_ms": 7}
    assert taken(retries={"max_attempts": 1}).plan.retry == {}, "never again"
    bare = take_in(Request("ann", "any", retries={"max_attempts": 5}), RULES, NOW)
    assert bare.plan.retry is None, "there is none to change"


def test_an_empty_policy_of_a_type_goes_before_what_is_usual() -> None:
    rules = Rules({"scan": NO_RULES._replace(retry={})})
    usual = Usual(retry={"max_attempts": 4})
    assert take_in(ASKED._replace(usual=usual), rules, NOW).plan.retry == {}


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"deadline": FAR + 1}, "deadline"),
        ({"not_before": FAR + 1}, "notBefore"),
        ({"not_before": NOW + 1, "delay_ms": 0}, "delayMs"),
    ],
)
def test_moments_must_make_sense(said: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"field '{field}'") as error:
        taken(**said)
    assert error.value.details == {"field": field}


def test_moments_that_mean_nothing_are_left_out() -> None:
    assert taken(deadline=FAR, not_before=FAR).plan.not_before == FAR
    assert taken(not_before=NOW).plan.not_before is None
    assert taken(delay_ms=0).plan.delay_ms is None
    assert taken(delay_ms=1).plan.delay_ms == 1


@pytest.mark.parametrize(
    ("action", "said", "executor"),
    [
        ("scan", {"tab": "t"}, "web"),
        ("echo", {}, "builtin"),
        ("echo", {"tab": "t"}, "tabs"),
        ("click", {"tab": ""}, "tabs"),
        ("click", {}, "pull"),
        ("chat", {}, "chats"),
        ("click", {"needs_tab": True}, "tabs"),
        ("echo", {"needs_tab": True, "tab": ""}, "builtin"),
        ("chat", {"needs_tab": True}, "tabs"),
    ],
)
def test_who_runs_an_action(action: str, said: dict[str, Any], executor: str) -> None:
    assert take_in(Request("ann", action, **said), RULES, NOW).executor == executor


def test_without_tabs_and_chats_the_builtin_refuses_what_needs_one_and_the_rest_waits() -> None:
    assert take_in(Request("ann", "click", needs_tab=True), Rules(), NOW).executor == "builtin"
    tabbed = Request("ann", "click", tab="t", needs_tab=True)
    assert take_in(tabbed, Rules(), NOW).executor == "pull"
    assert take_in(Request("ann", "chat"), Rules(), NOW).executor == "pull"


def test_the_tasks_of_a_batch_are_taken_in_alike_and_one_bad_one_spoils_it() -> None:
    batch = BatchRequest((ASKED, ASKED), "native", 2, "https://x.example", "ann", "i", "d")
    command = take_in_batch(batch, RULES, NOW)
    assert command.tasks == (taken(), taken())
    assert command[1:] == batch[1:]
    with pytest.raises(TimeoutTooLong):
        take_in_batch(batch._replace(tasks=(ASKED, ASKED._replace(timeout_ms=1001))), RULES, NOW)


def test_rules_are_written_and_read() -> None:
    rules = Rules({"scan": SCAN, "plain": NO_RULES}, tab="tabs")
    assert Rules.from_dict(rules.to_dict()) == rules
    assert rules.to_dict()["types"]["plain"] == {}
    assert Rules().to_dict() == {}
    assert Rules.from_dict({"types": {"x": {"later": 1}}, "later": 2}) == Rules({"x": NO_RULES})


def test_the_rules_come_from_the_settings() -> None:
    file = {
        "executors": {
            "a": {"kind": "http", "url": "http://127.0.0.1:1"},
            "b": {"kind": "tab", "url": "http://127.0.0.1:1"},
            "c": {"kind": "tab", "url": "http://127.0.0.1:1"},
        },
        "types": {"scan": {"executor": "a", "timeoutMs": 5, "retry": {"maxAttempts": 2}}},
    }
    rules = parse_settings(file).rules()
    assert rules.types == {"scan": TypeRules("a", 5, retry={"max_attempts": 2})}
    assert (rules.tab, rules.chat) == ("b", None)
    assert parse_settings({}).rules() == Rules()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 1000), st.sampled_from(["fail", "retry", None]), st.booleans())
def test_intake_says_the_same_of_the_same(timeout: int, word: str | None, urgent: bool) -> None:  # noqa: FBT001
    request = made(Request, "ann", "scan", timeout_ms=timeout, on_interrupt=word, preempt=urgent)
    command = take_in(request, RULES, NOW)
    assert command == take_in(request, RULES, NOW)
    assert command.plan.preempt == (urgent or None)
