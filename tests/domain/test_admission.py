"""Admission: who may enter, told as given, when, then."""

from __future__ import annotations

from support.builders import (
    assigned,
    cancelled,
    expired,
    given,
    interrupted,
    rejected,
    server_started,
    submitted,
    succeeded,
)

from rota.domain import events as e
from rota.domain.admission import AGENT_FULL, GLOBAL_FULL
from rota.domain.commands import SubmitTask

ECHO = SubmitTask("a1", "echo", "builtin")
FULL = SubmitTask(
    agent="a1",
    action="click",
    executor="web",
    params={"x": 1},
    priority=0,
    dialect="pinchtab",
    tab="tab-1",
    ref="r5",
    callback="https://example.com/hook",
    deadline=17,
    timeout_ms=5,
    on_interrupt="fail",
    by="ann",
)


def accepted(position: int, command: SubmitTask = ECHO) -> e.TaskSubmitted:
    """The acceptance of the command as `new`."""
    fields = {name: getattr(command, name) for name in command._fields if name != "by"}
    return e.TaskSubmitted(task="new", position=position, **fields)


def refused(error: str, command: SubmitTask = ECHO) -> e.TaskRejected:
    """The rejection of the command as `new`."""
    kept = set(e.TaskRejected._fields) & set(command._fields)
    fields = {name: getattr(command, name) for name in kept}
    return e.TaskRejected(task="new", code="queue_full", error=error, **fields)


def test_a_task_is_accepted_into_an_empty_queue_at_the_first_place() -> None:
    given(server_started()).when_submitting(ECHO).then(accepted(1))


def test_every_field_of_a_submission_is_recorded() -> None:
    given().when_submitting(FULL).then(accepted(1, FULL))


def test_the_position_counts_all_agents() -> None:
    given(submitted("t1", "a1"), submitted("t2", "a2")).when_submitting(ECHO).then(accepted(3))


def test_a_full_queue_rejects() -> None:
    limits = server_started(queued=2)
    given(limits, submitted("t1", "a2"), submitted("t2", "a3")).when_submitting(ECHO).then(
        refused(GLOBAL_FULL)
    )


def test_an_agents_full_queue_rejects_that_agent_only() -> None:
    story = given(server_started(queued_per_agent=2), submitted("t1"), submitted("t2"))
    story.when_submitting(ECHO).then(refused(AGENT_FULL))
    other = ECHO._replace(agent="a2")
    story.when_submitting(other).then(accepted(3, other))


def test_when_both_are_full_the_global_queue_is_named() -> None:
    story = given(server_started(queued=1, queued_per_agent=1), submitted())
    story.when_submitting(ECHO).then(refused(GLOBAL_FULL))


def test_a_rejection_records_what_was_asked() -> None:
    given(server_started(queued=0)).when_submitting(FULL).then(refused(GLOBAL_FULL, FULL))


def test_one_less_than_full_is_accepted() -> None:
    given(server_started(queued=2), submitted()).when_submitting(ECHO).then(accepted(2))


def test_only_waiting_tasks_count() -> None:
    one = server_started(queued=1, queued_per_agent=1)
    for ended in (
        (assigned(),),
        (assigned(), succeeded()),
        (cancelled(),),
        (expired(),),
    ):
        given(one, submitted(), *ended).when_submitting(ECHO).then(accepted(1))
    given(one, rejected()).when_submitting(ECHO).then(accepted(1))


def test_an_interrupted_task_counts_again() -> None:
    story = given(server_started(queued=1), submitted(), assigned(), interrupted())
    story.when_submitting(ECHO).then(refused(GLOBAL_FULL))
