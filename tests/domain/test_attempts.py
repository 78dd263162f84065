"""What the end of an attempt means for its task, told as given, when, then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.builders import (
    START_US,
    assigned,
    attempt_failed,
    cancelled,
    expired,
    failed,
    given,
    interrupted,
    rejected,
    released,
    revived,
    started,
    submitted,
    succeeded,
)
from support.wishes import changed

from rota.domain import events as e
from rota.domain.attempts import (
    INTERRUPTIONS_MAX,
    QUEUED_TOO_LONG,
    RAN_TOO_LONG,
    decide_assignment,
    decide_cancel,
    decide_expiry,
    decide_interruption,
    decide_preemption,
    decide_queue_timeout,
    decide_release,
    decide_result,
    decide_revival,
    decide_start,
    decide_timeout,
)
from rota.domain.commands import Outcome
from rota.domain.task import ORDERLY, PREEMPTED, limits_of
from rota.errors import Conflict

if TYPE_CHECKING:
    from support.builders import Given

GOOD = Outcome(ok=True, result={"n": 1})
BAD = Outcome(ok=False, code="http_500", error="HTTP 500", details={"status": 500})
CRASH = "server restarted"
NOW = START_US + 60_000_000
RUN = (assigned(), started(), interrupted())
ENDED: dict[str, tuple[e.Event, ...]] = {
    "succeeded": (submitted(), assigned(), started(), succeeded()),
    "failed": (submitted(), assigned(), started(), failed()),
    "cancelled": (submitted(), assigned(), started(), cancelled(was="running")),
    "expired": (submitted(), expired()),
    "rejected": (rejected(),),
}


# -- assignment and start


def test_the_first_assignment_is_the_first_attempt() -> None:
    given(submitted()).when(decide_assignment).then(assigned(attempt=1))


def test_an_interruption_costs_no_attempt() -> None:
    given(submitted(), *RUN).when(decide_assignment).then(assigned(attempt=1))


def test_an_assigned_attempt_starts() -> None:
    story = given(submitted(), assigned())
    story.when(decide_start, story.token()).then(started())


def test_an_attempt_that_lost_its_token_does_not_start() -> None:
    story = given(submitted(), assigned(), interrupted(), assigned())
    story.when(decide_start, story.token(0)).then_nothing()
    story.when(decide_start, story.token(1)).then(started())


def test_an_attempt_that_runs_is_not_started_again() -> None:
    story = given(submitted(), assigned(), started())
    story.when(decide_start, story.token()).then_nothing()


def test_an_attempt_whose_task_was_cancelled_does_not_start() -> None:
    story = given(submitted(), assigned(), cancelled(was="assigned"))
    story.when(decide_start, story.token()).then_nothing()


def test_a_task_that_is_gone_starts_nothing() -> None:
    assert decide_start(None, 1) is None
    assert decide_timeout(None, 1, START_US, 0.0) is None
    assert decide_expiry(None, START_US) is None


# -- results and fencing


def test_a_good_result_ends_the_task_well() -> None:
    story = given(submitted(), assigned(), started())
    story.when(decide_result, 1, story.token(), GOOD, NOW, 0.0).then(succeeded(result={"n": 1}))


def test_a_bad_result_fails_the_task() -> None:
    story = given(submitted(), assigned(), started())
    story.when(decide_result, 1, story.token(), BAD, NOW, 0.0).then(
        e.TaskFailed("t1", "a1", 1, "http_500", "HTTP 500", {"status": 500})
    )


def test_a_result_may_come_before_its_start_is_recorded() -> None:
    story = given(submitted(), assigned())
    story.when(decide_result, 1, story.token(), GOOD, NOW, 0.0).then(succeeded(result={"n": 1}))


def test_the_result_of_an_old_attempt_is_refused_and_recorded() -> None:
    story = given(submitted(), assigned(), started(), interrupted(), assigned(), started())
    old, new = story.token(0), story.token(1)
    story.when(decide_result, 1, old, GOOD, NOW, 0.0).then(
        e.ResultRefused("t1", "a1", 1, "succeeded")
    )
    story.when(decide_result, 1, old, BAD, NOW, 0.0).then(e.ResultRefused("t1", "a1", 1, "failed"))
    story.when(decide_result, 1, new, GOOD, NOW, 0.0).then(succeeded(result={"n": 1}))


def test_a_result_is_refused_while_the_task_waits_again() -> None:
    story = given(submitted(), assigned(), started(), interrupted())
    story.when(decide_result, 1, story.token(), GOOD, NOW, 0.0).then(
        e.ResultRefused("t1", "a1", 1, "succeeded")
    )


@pytest.mark.parametrize("token", [0, -1, 1, 99])
def test_a_token_that_was_never_given_is_refused(token: int) -> None:
    given(submitted(), assigned(), started()).when(decide_result, 1, token, GOOD, NOW, 0.0).then(
        e.ResultRefused("t1", "a1", 1, "succeeded")
    )


@pytest.mark.parametrize("ended", ["succeeded", "failed", "cancelled"])
def test_a_task_that_has_ended_takes_no_result(ended: str) -> None:
    """Cancel wins, and so does whatever else came first."""
    story = given(*ENDED[ended])
    story.when(decide_result, 1, story.token(), GOOD, NOW, 0.0).then(
        e.ResultRefused("t1", "a1", 1, "succeeded")
    )


# -- cancel


@pytest.mark.parametrize(
    ("before", "was"),
    [
        ((), "ready"),
        ((assigned(),), "assigned"),
        ((assigned(), started()), "running"),
        ((assigned(), started(), interrupted()), "ready"),
    ],
)
def test_a_task_that_has_not_ended_is_cancelled(before: tuple[e.Event, ...], was: str) -> None:
    given(submitted(), *before).when(decide_cancel, "enough").then(
        cancelled(was=was, reason="enough")
    )


@pytest.mark.parametrize("ended", ENDED)
def test_a_task_that_has_ended_is_not_cancelled(ended: str) -> None:
    state = "failed" if ended == "expired" else ended
    given(*ENDED[ended]).when(decide_cancel, "").then_refused(Conflict, f"already {state}")


# -- interruptions


def test_an_interrupted_attempt_goes_back_to_its_queue() -> None:
    given(submitted(), assigned(), started()).when(decide_interruption, CRASH).then(
        interrupted(reason=CRASH)
    )


@pytest.mark.parametrize("before", range(INTERRUPTIONS_MAX - 1))
def test_fewer_than_five_interruptions_are_forgiven(before: int) -> None:
    story = given(submitted(), *RUN * before, assigned(), started())
    story.when(decide_interruption, CRASH).then(interrupted(reason=CRASH))


def test_the_fifth_interruption_fails_the_task() -> None:
    story = given(submitted(), *RUN * (INTERRUPTIONS_MAX - 1), assigned(), started())
    story.when(decide_interruption, CRASH).then(
        interrupted(reason=CRASH), failed(code="interrupted", error="interrupted 5 times")
    )


def test_an_orderly_shutdown_does_not_count() -> None:
    orderly = (assigned(), started(), interrupted(reason=ORDERLY))
    story = given(submitted(), *orderly * 20, assigned(), started())
    assert story.task.interruptions == 0
    story.when(decide_interruption, CRASH).then(interrupted(reason=CRASH))


def test_an_orderly_shutdown_does_not_fail_a_task_that_was_often_interrupted() -> None:
    story = given(submitted(), *RUN * (INTERRUPTIONS_MAX - 1), assigned(), started())
    story.when(decide_interruption, ORDERLY).then(interrupted(reason=ORDERLY))


@pytest.mark.parametrize("reason", [CRASH, ORDERLY])
def test_a_task_that_must_not_run_twice_fails_at_its_first_interruption(reason: str) -> None:
    story = given(submitted(on_interrupt="fail"), assigned(), started())
    error = "the attempt was interrupted and the task must not run twice"
    story.when(decide_interruption, reason).then(
        interrupted(reason=reason), failed(code="interrupted", error=error)
    )


# -- clocks

DUE = START_US + 1_000_000
LATE = submitted(deadline=DUE)


def test_a_deadline_that_passes_while_waiting_expires_the_task() -> None:
    given(LATE).when(decide_expiry, DUE).then(
        e.TaskExpired("t1", "a1", "deadline", QUEUED_TOO_LONG)
    )


@pytest.mark.parametrize("more", [(assigned(),), (assigned(), started())])
def test_a_deadline_that_passes_in_flight_fails_the_task(more: tuple[e.Event, ...]) -> None:
    given(LATE, *more).when(decide_expiry, DUE).then(
        failed(code="deadline_exceeded", error=RAN_TOO_LONG)
    )


def test_a_deadline_does_nothing_before_its_time_or_after_the_end() -> None:
    given(LATE).when(decide_expiry, DUE - 1).then_nothing()
    given(submitted()).when(decide_expiry, DUE * 2).then_nothing()
    given(LATE, assigned(), succeeded()).when(decide_expiry, DUE).then_nothing()
    given(LATE, cancelled()).when(decide_expiry, DUE).then_nothing()


def test_an_attempt_that_runs_past_its_timeout_fails() -> None:
    story = given(submitted(timeout_ms=50), assigned(), started())
    due = story.task.assigned_at + 50_000
    story.when(decide_timeout, story.token(), due - 1, 0.0).then_nothing()
    story.when(decide_timeout, story.token(), due, 0.0).then(
        failed(code="timeout", error="attempt timed out after 50 ms")
    )


def test_the_timeout_of_an_old_attempt_does_nothing() -> None:
    story = given(submitted(timeout_ms=50), assigned(), interrupted(), assigned())
    story.when(decide_timeout, story.token(0), START_US * 2, 0.0).then_nothing()
    given(submitted(), assigned()).when(decide_timeout, 2, START_US * 2, 0.0).then_nothing()


# -- release: dependencies, delays, backoff

BLOCKED = submitted(waits=["p"], depends={"p": "p"})
PARENT = (submitted("p"), assigned("p"))
LATER = START_US + 5_000_000


def test_a_task_whose_dependencies_are_met_is_released() -> None:
    story = given(*PARENT, BLOCKED, succeeded("p"))
    story.when(decide_release, story.now).then(released())


def test_a_task_that_still_waits_for_somebody_is_not_released() -> None:
    given(BLOCKED).when(decide_release, NOW).then_nothing()
    two = submitted(waits=["p", "q"], depends={"p": "p", "q": "q"})
    given(*PARENT, two, succeeded("p")).when(decide_release, NOW).then_nothing()


def test_a_task_whose_dependencies_are_met_too_early_is_delayed() -> None:
    early = changed(BLOCKED, not_before=LATER)
    story = given(*PARENT, early, succeeded("p"))
    story.when(decide_release, LATER - 1).then(e.TaskDelayed("t1", "a1", LATER))
    story.when(decide_release, LATER).then(released())


def test_a_delayed_task_is_released_when_its_moment_has_come_and_not_before() -> None:
    story = given(submitted(not_before=LATER))
    story.when(decide_release, LATER - 1).then_nothing()
    story.when(decide_release, LATER).then(released(after="delay"))


def test_a_task_delayed_after_its_dependencies_is_released_by_the_clock() -> None:
    early = changed(BLOCKED, not_before=LATER)
    story = given(*PARENT, early, succeeded("p"), e.TaskDelayed("t1", "a1", LATER))
    story.when(decide_release, LATER - 1).then_nothing()
    story.when(decide_release, LATER).then(released(after="delay"))


def test_a_task_that_backs_off_is_released_for_its_next_attempt() -> None:
    story = given(submitted(), assigned(), attempt_failed(next_at=LATER))
    story.when(decide_release, LATER - 1).then_nothing()
    story.when(decide_release, LATER).then(released(after="backoff"))
    given(submitted(), assigned(), attempt_failed(next_at=0), released(after="backoff")).when(
        decide_assignment
    ).then(assigned(attempt=2))


@pytest.mark.parametrize("ended", ENDED)
def test_nobody_is_released_who_does_not_wait_for_it(ended: str) -> None:
    given(*ENDED[ended]).when(decide_release, NOW).then_nothing()
    given(submitted(), assigned()).when(decide_release, NOW).then_nothing()
    given(submitted()).when(decide_release, NOW).then_nothing()
    assert decide_release(None, NOW) is None


@pytest.mark.parametrize(
    "waiting",
    [(BLOCKED,), (submitted(not_before=LATER),), (submitted(), assigned(), attempt_failed())],
)
def test_a_deadline_and_a_cancel_reach_a_task_that_waits_outside_the_queue(
    waiting: tuple[Any, ...],
) -> None:
    dated = (waiting[0]._replace(deadline=DUE), *waiting[1:])
    story = given(*dated)
    was = story.task.state.value
    story.when(decide_expiry, DUE).then(e.TaskExpired("t1", "a1", "deadline", QUEUED_TOO_LONG))
    story.when(decide_cancel, "enough").then(cancelled(was=was, reason="enough"))


# -- the queue timeout

PATIENT = submitted(queue_timeout_ms=50)
IMPATIENCE = e.TaskExpired("t1", "a1", "queue_timeout", "waited longer than 50 ms to be dispatched")


def test_a_task_that_waits_too_long_for_its_dispatch_expires() -> None:
    story = given(PATIENT)
    due = story.task.ready_at + 50_000
    story.when(decide_queue_timeout, story.task.entry, due - 1).then_nothing()
    story.when(decide_queue_timeout, story.task.entry, due).then(IMPATIENCE)


def test_the_wait_counts_anew_each_time_a_task_becomes_ready() -> None:
    first = given(PATIENT).task.entry
    for again in (
        (assigned(), interrupted()),
        (assigned(), attempt_failed(), released(after="backoff")),
        (assigned(), failed(), revived()),
    ):
        story = given(PATIENT, *again)
        task = story.task
        assert task.ready_at == story.now
        story.when(decide_queue_timeout, first, NOW).then_nothing()
        story.when(decide_queue_timeout, task.entry, story.now + 49_999).then_nothing()
        story.when(decide_queue_timeout, task.entry, story.now + 50_000).then(IMPATIENCE)


@pytest.mark.parametrize(
    "story",
    [
        given(PATIENT, assigned()),
        given(PATIENT, cancelled()),
        given(changed(PATIENT, waits=["p"], depends={"p": "p"})),
        given(changed(PATIENT, not_before=LATER)),
        given(PATIENT, assigned(), attempt_failed(next_at=LATER)),
        given(submitted()),
        given(submitted(key="k")),
    ],
    ids=["assigned", "cancelled", "blocked", "delayed", "backing off", "no plan", "no timeout"],
)
def test_only_a_ready_task_waits_too_long(story: Given) -> None:
    story.when(decide_queue_timeout, story.task.entry, NOW * 2).then_nothing()
    assert decide_queue_timeout(None, 1, NOW) is None


# -- a new life


@pytest.mark.parametrize("ended", ["failed", "expired"])
def test_a_failed_task_can_be_revived(ended: str) -> None:
    given(*ENDED[ended]).when(decide_revival, NOW).then(revived())


@pytest.mark.parametrize("ended", ["succeeded", "cancelled", "rejected"])
def test_nothing_else_that_ended_can_be_revived(ended: str) -> None:
    given(*ENDED[ended]).when(decide_revival, NOW).then_refused(Conflict, f"this one is {ended}")


def test_a_task_whose_deadline_has_passed_is_not_revived() -> None:
    late = given(submitted(deadline=NOW), assigned(), failed())
    late.when(decide_revival, NOW).then_refused(Conflict, "deadline has passed")
    late.when(decide_revival, NOW - 1).then(revived())


def test_a_task_that_its_deadline_has_ended_is_not_revived_when_the_clock_is_set_back() -> None:
    """It may have waited for its dependencies still, and would not wait for them again."""
    for story in (submitted(deadline=NOW), BLOCKED._replace(deadline=NOW)):
        late = given(story, expired())
        late.when(decide_revival, NOW).then_refused(Conflict, "deadline has passed")
        late.when(decide_revival, NOW - 1).then_refused(Conflict, "deadline has passed")


def test_a_task_that_lives_cannot_be_revived() -> None:
    for story in (given(submitted()), given(submitted(), assigned()), given(BLOCKED)):
        state = story.task.state.value
        story.when(decide_revival, NOW).then_refused(Conflict, f"this one is {state}")


def test_a_revived_task_goes_on_counting_and_forgets_its_interruptions() -> None:
    crashed = (*RUN * (INTERRUPTIONS_MAX - 1), assigned(), interrupted(), failed())
    story = given(submitted(), *crashed, revived())
    story.when(decide_assignment).then(assigned(attempt=1))
    again = given(submitted(), *crashed, revived(), assigned(), started())
    again.when(decide_interruption, CRASH).then(interrupted(reason=CRASH))
    given(submitted(), assigned(), failed(), revived()).when(decide_assignment).then(
        assigned(attempt=2)
    )


def test_a_late_result_of_an_earlier_life_is_refused() -> None:
    story = given(submitted(), assigned(), failed(), revived(), assigned(attempt=2))
    story.when(decide_result, 1, story.token(0), GOOD, NOW, 0.0).then(
        e.ResultRefused("t1", "a1", 1, "succeeded")
    )


# -- pre-emption


def urgent(*running: e.TaskSubmitted, **fields: Any) -> Given:
    """An urgent task that is ready, and others of its agent in flight."""
    flights: list[e.Event] = []
    for task in running:
        flights += [task, assigned(task.task)]
    return given(*flights, submitted(priority=1, preempt=True, **fields))


def preemption(story: Given, *held_by: str) -> Any:
    """Ask whom the urgent task may push aside."""
    return story.when(decide_preemption, held_by, story.state.slots.held_by("a1"))


def swap(victim: str) -> tuple[e.Event, ...]:
    """The victim goes back to its queue, the urgent task takes its place."""
    return (e.AttemptInterrupted(victim, "a1", 1, PREEMPTED, "t1"), assigned())


def test_an_urgent_task_takes_the_place_of_the_least_urgent() -> None:
    story = urgent(submitted("v1", priority=2), submitted("v2", priority=4))
    preemption(story, "agent:ann").then(*swap("v2"))


def test_among_equals_the_one_that_has_run_shortest_goes() -> None:
    story = urgent(submitted("v1", priority=3), submitted("v2", priority=3))
    preemption(story, "inflight").then(*swap("v2"))


@pytest.mark.parametrize("priority", [1, 0])
def test_what_is_as_urgent_stays(priority: int) -> None:
    preemption(urgent(submitted("v1", priority=priority)), "agent:ann").then_nothing()


def test_what_must_not_run_twice_stays() -> None:
    spared = submitted("v1", priority=9, on_interrupt="fail")
    preemption(urgent(spared), "agent:ann").then_nothing()
    preemption(urgent(spared, submitted("v2", priority=2)), "agent:ann").then(*swap("v2"))


def test_a_victim_frees_every_limit_that_holds_the_urgent_task_back() -> None:
    story = urgent(
        submitted("v1", priority=9, action="scan"),
        submitted("v2", priority=5, action="scan", key="shop"),
        submitted("v3", priority=3, key="shop"),
        key="shop",
    )
    assert "key:shop" in limits_of(story.task.lane)
    preemption(story, "agent:ann").then(*swap("v1"))
    preemption(story, "key:shop").then(*swap("v2"))
    preemption(story, "agent:ann", "type:echo", "key:shop").then(*swap("v3"))
    preemption(story, "batch:1:b").then_nothing()


def test_nobody_gives_way_where_nobody_runs() -> None:
    preemption(urgent(), "agent:ann").then_nothing()


def test_pre_emption_costs_its_victim_no_attempt_and_is_never_held_against_it() -> None:
    pushed = (assigned(), started(), interrupted(reason=PREEMPTED))
    story = given(submitted(), *pushed * 20)
    assert story.task.interruptions == 0
    story.when(decide_assignment).then(assigned(attempt=1))
    again = given(submitted(), *pushed * 20, assigned(), started())
    again.when(decide_interruption, CRASH).then(interrupted(reason=CRASH))
