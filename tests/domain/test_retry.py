"""When a failed attempt is tried again, and how long after; the curves against their formulas."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, settings
from hypothesis import given as for_all
from hypothesis import strategies as st
from support.builders import (
    START_US,
    assigned,
    attempt_failed,
    failed,
    given,
    interrupted,
    released,
    revived,
    started,
    submitted,
)

from rota.domain import events as e
from rota.domain.attempts import decide_result, decide_timeout
from rota.domain.commands import Outcome
from rota.domain.retry import (
    ASKED_FOR,
    HOPELESS,
    RETRY_AFTER_S_MAX,
    RetryPolicy,
    classes_of,
    decide_failure,
    policy_of,
)

NOW = START_US + 60_000_000
BAD = Outcome(ok=False, code="boom", error="it broke")
THRICE = {"kind": "fixed", "base_ms": 10, "max_attempts": 3}
AGAIN = (attempt_failed(next_at=START_US), released(after="backoff"))
LOST = failed(code="boom")

settled = settings(max_examples=300, deadline=None, derandomize=True, database=None)

POLICIES = st.builds(
    RetryPolicy,
    kind=st.sampled_from(("exponential", "quadratic", "linear", "fixed")),
    base_ms=st.integers(0, 86_400_000),
    multiplier=st.floats(1, 100),
    jitter_ms=st.sampled_from((0, 1, 1000)) | st.integers(0, 86_400_000),
    max_ms=st.integers(0, 86_400_000),
    max_attempts=st.integers(1, 100),
    retry_on=st.none(),
)
RETRIES = st.integers(1, 99)
DRAWS = st.floats(0, 1)


def curve_ms(policy: RetryPolicy, retry: int) -> Fraction:
    """The pause before the `retry`-th retry by the formulas, exactly, without jitter and bound."""
    base = Fraction(policy.base_ms)
    return {
        "exponential": base * Fraction(policy.multiplier) ** (retry - 1),
        "quadratic": base * retry**2,
        "linear": base * retry,
        "fixed": base,
    }[policy.kind]


def is_about(found_us: int, exact_ms: Fraction) -> bool:
    """Whether a pause is that many milliseconds, to a microsecond and a float's exactness."""
    return abs(found_us - exact_ms * 1000) <= 1 + exact_ms * 1000 / 10**12


# -- the curves


@pytest.mark.parametrize(
    ("kind", "pauses_ms"),
    [
        ("exponential", [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]),
        ("quadratic", [1000, 4000, 9000, 16_000, 25_000, 36_000, 49_000, 60_000]),
        ("linear", [1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000]),
        ("fixed", [1000] * 8),
    ],
)
def test_each_curve_is_the_documents(kind: str, pauses_ms: list[int]) -> None:
    policy = RetryPolicy(kind=kind)
    assert [policy.delay_us(n, 0.0) for n in range(1, 9)] == [ms * 1000 for ms in pauses_ms]


def test_jitter_is_added_to_the_curve_and_the_bound_holds_for_both() -> None:
    policy = RetryPolicy(kind="linear", base_ms=100, jitter_ms=50, max_ms=220)
    assert [policy.delay_us(n, 0.5) for n in (1, 2, 3)] == [125_000, 220_000, 220_000]
    assert [policy.delay_us(n, 1.0) for n in (1, 2, 3)] == [150_000, 220_000, 220_000]


@settled
@for_all(POLICIES, RETRIES, DRAWS)
@example(RetryPolicy(multiplier=100.0, base_ms=86_400_000, max_ms=86_400_000), 99, 1.0)
def test_a_pause_is_the_smaller_of_its_curve_with_jitter_and_its_bound(
    policy: RetryPolicy, retry: int, draw: float
) -> None:
    exact = min(
        curve_ms(policy, retry) + Fraction(draw) * policy.jitter_ms, Fraction(policy.max_ms)
    )
    assert is_about(policy.delay_us(retry, draw), exact)


@settled
@for_all(POLICIES, RETRIES, DRAWS)
def test_a_pause_is_never_over_its_bound_and_never_under_its_curve(
    policy: RetryPolicy, retry: int, draw: float
) -> None:
    pause = policy.delay_us(retry, draw)
    assert 0 <= pause <= policy.max_ms * 1000
    assert pause >= policy.delay_us(retry, 0.0)
    bare = min(curve_ms(policy, retry), Fraction(policy.max_ms))
    assert is_about(policy.delay_us(retry, 0.0), bare)


@settled
@for_all(POLICIES, RETRIES, DRAWS, DRAWS)
def test_a_later_retry_and_a_larger_draw_never_wait_shorter(
    policy: RetryPolicy, retry: int, one: float, other: float
) -> None:
    assert policy.delay_us(retry, one) <= policy.delay_us(retry + 1, one)
    low, high = sorted((one, other))
    assert policy.delay_us(retry, low) <= policy.delay_us(retry, high)
    if policy.kind == "fixed":
        assert policy.delay_us(retry, one) == policy.delay_us(retry + 1, one)


@settled
@for_all(POLICIES)
def test_a_policy_comes_back_from_what_is_written_of_it(policy: RetryPolicy) -> None:
    written = policy.to_dict()
    assert RetryPolicy(**written) == policy
    assert all(value != getattr(RetryPolicy(), name) for name, value in written.items())


# -- whether to try again


def test_without_a_policy_the_first_failure_is_the_last() -> None:
    story = given(submitted(), assigned(), started())
    story.when(decide_failure, BAD, NOW, 0.0).then(LOST)


def test_a_policy_of_one_attempt_allows_no_retry() -> None:
    story = given(submitted(retry={}), assigned(), started())
    story.when(decide_failure, BAD, NOW, 0.0).then(LOST)


def test_attempts_are_tried_again_until_they_are_used_up() -> None:
    task = submitted(retry=THRICE)
    due = NOW + 10_000
    first = given(task, assigned(), started())
    first.when(decide_failure, BAD, NOW, 0.0).then(attempt_failed(next_at=due))
    second = given(task, assigned(), *AGAIN, assigned(attempt=2))
    second.when(decide_failure, BAD, NOW, 0.0).then(attempt_failed(attempt=2, next_at=due))
    third = given(task, assigned(), *AGAIN, assigned(attempt=2), *AGAIN, assigned(attempt=3))
    third.when(decide_failure, BAD, NOW, 0.0).then(failed(attempt=3))


def test_the_nth_retry_waits_as_the_curve_says_for_n() -> None:
    task = submitted(retry={"max_attempts": 4, "jitter_ms": 100})
    first = given(task, assigned())
    first.when(decide_failure, BAD, NOW, 0.5).then(attempt_failed(next_at=NOW + 1_050_000))
    second = given(task, assigned(), *AGAIN, assigned(attempt=2))
    second.when(decide_failure, BAD, NOW, 0.0).then(
        attempt_failed(attempt=2, next_at=NOW + 2_000_000)
    )


def test_an_interruption_uses_no_attempt_up() -> None:
    task = submitted(retry=THRICE)
    crashes = (assigned(), interrupted()) * 4
    story = given(task, *crashes, assigned())
    story.when(decide_failure, BAD, NOW, 0.0).then(attempt_failed(next_at=NOW + 10_000))


def test_a_revived_task_has_all_its_attempts_again() -> None:
    task = submitted(retry={"kind": "linear", "base_ms": 10, "max_attempts": 2})
    spent = (assigned(), *AGAIN, assigned(attempt=2), failed(attempt=2), revived())
    story = given(task, *spent, assigned(attempt=3))
    story.when(decide_failure, BAD, NOW, 0.0).then(attempt_failed(attempt=3, next_at=NOW + 10_000))
    last = given(task, *spent, assigned(attempt=3), *AGAIN, assigned(attempt=4))
    last.when(decide_failure, BAD, NOW, 0.0).then(failed(attempt=4))


def test_a_result_and_a_timeout_are_judged_by_the_policy() -> None:
    story = given(submitted(retry=THRICE, timeout_ms=50), assigned(), started())
    token = story.token()
    story.when(decide_result, 1, token, BAD, NOW, 0.0).then(attempt_failed(next_at=NOW + 10_000))
    story.when(decide_timeout, token, NOW, 0.0).then(
        attempt_failed(code="timeout", error="attempt timed out after 50 ms", next_at=NOW + 10_000)
    )


def test_a_second_result_of_an_attempt_that_failed_is_refused() -> None:
    story = given(submitted(retry=THRICE), assigned(), started(), attempt_failed(next_at=NOW))
    story.when(decide_result, 1, story.token(), BAD, NOW, 0.0).then(
        e.ResultRefused("t1", "a1", 1, "failed")
    )


def test_the_details_of_a_failure_are_kept_either_way() -> None:
    outcome = BAD._replace(details={"status": 503})
    given(submitted(retry=THRICE), assigned()).when(decide_failure, outcome, NOW, 0.0).then(
        attempt_failed(next_at=NOW + 10_000, details={"status": 503})
    )
    given(submitted(), assigned()).when(decide_failure, outcome, NOW, 0.0).then(
        failed(details={"status": 503})
    )


# -- Retry-After


@pytest.mark.parametrize(
    ("asked_s", "pause_us"),
    [
        (None, 10_000),
        (0.0, 10_000),
        (0.001, 10_000),
        (0.5, 500_000),
        (90.0, 90_000_000),
        (10.0**9, round(RETRY_AFTER_S_MAX * 1_000_000)),
    ],
)
def test_an_executor_that_asks_for_time_lengthens_the_pause(
    asked_s: float | None, pause_us: int
) -> None:
    """Past the policy's own bound, but not for ever."""
    story = given(submitted(retry={**THRICE, "max_ms": 60}), assigned())
    story.when(decide_failure, BAD._replace(retry_after_s=asked_s), NOW, 0.0).then(
        attempt_failed(next_at=NOW + pause_us)
    )


@pytest.mark.parametrize(
    ("asked_s", "pause_us"),
    [(None, 10_000), (0.0, 0), (0.001, 1000), (90.0, 90_000_000), (7200.0, 3_600_000_000)],
)
def test_a_workers_own_number_takes_the_place_of_the_pause(
    asked_s: float | None, pause_us: int
) -> None:
    story = given(submitted(retry={**THRICE, "max_ms": 60}), assigned(worker="ada"))
    story.when(decide_failure, BAD._replace(retry_after_s=asked_s), NOW, 0.0).then(
        attempt_failed(next_at=NOW + pause_us)
    )


@settled
@for_all(POLICIES, DRAWS, st.none() | st.floats(0, 10_000))
def test_a_retry_is_due_after_its_pause_or_as_long_as_was_asked(
    policy: RetryPolicy, draw: float, asked_s: float | None
) -> None:
    story = given(submitted(retry=policy.to_dict()), assigned())
    event = decide_failure(story.task, BAD._replace(retry_after_s=asked_s), NOW, draw)
    if policy.max_attempts == 1:
        assert event == LOST
        return
    assert isinstance(event, e.AttemptFailed)
    asked_us = round(min(asked_s or 0.0, RETRY_AFTER_S_MAX) * 1_000_000)
    assert event.next_at - NOW == max(policy.delay_us(1, draw), asked_us)


# -- which errors


@pytest.mark.parametrize("code", sorted(HOPELESS))
def test_an_error_that_no_repetition_mends_is_not_tried_again(code: str) -> None:
    assert not RetryPolicy().covers(Outcome(ok=False, code=code))


def test_any_other_error_is_tried_again_unless_the_policy_names_some() -> None:
    assert RetryPolicy().covers(BAD)
    assert not RetryPolicy(retry_on=()).covers(BAD)
    assert not RetryPolicy(retry_on=["timeout"]).covers(BAD)
    assert RetryPolicy(retry_on=["timeout"]).covers(Outcome(ok=False, code="timeout"))


@pytest.mark.parametrize(
    ("code", "details", "names"),
    [
        ("timeout", None, {"timeout", "code:timeout"}),
        ("connection", {}, {"connection", "code:connection"}),
        (
            "http_503",
            {"status": 503},
            {"http_503", "code:http_503", "status:503", "status:5xx"},
        ),
        ("x", {"status": "503"}, {"x", "code:x"}),
        (
            "task_failed",
            {"code": "OUT_OF_STOCK"},
            {"task_failed", "code:task_failed", "code:OUT_OF_STOCK"},
        ),
    ],
)
def test_an_error_belongs_to_these_classes(
    code: str, details: dict[str, Any] | None, names: set[str]
) -> None:
    assert classes_of(code, details) == names
    for name in names:
        assert RetryPolicy(retry_on=[name]).covers(Outcome(ok=False, code=code, details=details))
    other = RetryPolicy(retry_on=["status:404", "status:4xx", "code:other"])
    assert not other.covers(Outcome(ok=False, code=code, details=details))


def test_the_executors_no_is_taken_and_its_yes_where_no_classes_are_named() -> None:
    hopeless = Outcome(ok=False, code="bad_params")
    assert RetryPolicy().covers(hopeless._replace(retryable=True))
    assert not RetryPolicy(retry_on=["timeout"]).covers(BAD._replace(retryable=True))
    assert not RetryPolicy().covers(BAD._replace(retryable=False))
    assert not RetryPolicy(retry_on=["boom"]).covers(BAD._replace(retryable=False))


def test_an_error_that_is_not_covered_ends_the_task_at_once() -> None:
    story = given(submitted(retry={**THRICE, "retry_on": ["timeout"]}), assigned())
    story.when(decide_failure, BAD, NOW, 0.0).then(LOST)


@pytest.mark.parametrize("asks", [{"retryable": True}, {"retry_after_s": 0.5}])
def test_a_worker_that_asks_for_another_attempt_gets_the_usual_policy(asks: dict[str, Any]) -> None:
    asking = BAD._replace(**asks)
    lent = given(submitted(), assigned(worker="ada"))
    pause_us = round(asks.get("retry_after_s", 1.0) * 1_000_000)
    lent.when(decide_failure, asking, NOW, 0.0).then(attempt_failed(next_at=NOW + pause_us))
    lent.when(decide_failure, BAD, NOW, 0.0).then(LOST)
    lent.when(decide_failure, asking._replace(retryable=False), NOW, 0.0).then(LOST)
    given(submitted(), assigned()).when(decide_failure, asking, NOW, 0.0).then(LOST)
    never = given(submitted(retry={}), assigned(worker="ada"))
    never.when(decide_failure, asking, NOW, 0.0).then(LOST)


LENT_THRICE = [
    event
    for attempt in (1, 2, 3)
    for event in (
        assigned(attempt=attempt, worker="ada"),
        attempt_failed(attempt=attempt, next_at=START_US),
        released(after="backoff"),
    )
]


def test_the_usual_policy_holds_for_all_attempts_once_it_was_asked_for() -> None:
    story = given(submitted(), *LENT_THRICE[:3])
    assert policy_of(story.task) == ASKED_FOR
    story = given(submitted(), *LENT_THRICE[:3], assigned(attempt=2, worker="ada"))
    assert policy_of(story.task) == ASKED_FOR
    assert isinstance(decide_failure(story.task, BAD, NOW, 0.0), e.AttemptFailed)
    story = given(submitted(), assigned(worker="ada"))
    assert policy_of(story.task) is None


def test_the_usual_policy_ends_after_four_attempts() -> None:
    asking = BAD._replace(retryable=True)
    story = given(submitted(), *LENT_THRICE, assigned(attempt=4, worker="ada"))
    assert isinstance(decide_failure(story.task, asking, NOW, 0.0), e.TaskFailed)
