"""Admission: who may enter, told as given, when, then."""

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
    fold,
    given,
    interrupted,
    rejected,
    released,
    server_started,
    submitted,
    succeeded,
)
from support.wishes import changed

from rota.domain import events as e
from rota.domain.admission import (
    AGENT_FULL,
    GLOBAL_FULL,
    SHARE_FULL,
    check_same,
    decide_batch,
    decide_submission,
    duplicate,
    submitted_batch,
    why_full,
)
from rota.domain.commands import Dedup, SubmitBatch, SubmitTask
from rota.domain.dependencies import Prospects
from rota.domain.plan import Plan
from rota.domain.tokens import LOCAL, ROTA
from rota.errors import InvalidRequest, Unprocessable

if TYPE_CHECKING:
    from support.builders import Given

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
    kept = set(e.TaskSubmitted._fields) & set(command._fields) - {"plan"}
    fields = {name: getattr(command, name) for name in kept}
    return e.TaskSubmitted(task="new", position=position, **fields)


def refused(error: str, command: SubmitTask = ECHO) -> e.TaskRejected:
    """The rejection of the command as `new`."""
    kept = {"agent", "action", "priority", "dialect"}
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


def test_a_token_has_a_share_of_the_queue_and_an_agent_without_tokens_its_own_cap() -> None:
    story = given(server_started(queued=8), *(submitted(f"t{n}") for n in range(4)))
    state = fold(record._replace(by="crawler#3") for record in story.records)
    waiting, limits = state.backlog, state.control.limits
    greedy = ECHO._replace(by="crawler#3/worker-1", agent="a2")
    assert decide_submission(waiting, limits, greedy, "new") == refused(SHARE_FULL, greedy)
    assert why_full(waiting, limits, ["a2"], by="crawler#3") == SHARE_FULL
    for by in ("reader#4", LOCAL, ROTA):
        other = ECHO._replace(by=by)
        assert decide_submission(waiting, limits, other, "new") == accepted(5)
    assert why_full(waiting, limits, ["a2"] * 4, by="reader#4") is None
    assert why_full(waiting, limits, ["a2"] * 5, by="reader#4") == GLOBAL_FULL
    one = fold(record._replace(by="crawler#3") for record in story.records[:2])
    assert why_full(one.backlog, limits, ["a1", "a2", "a3"], by="crawler#3") is None
    assert why_full(one.backlog, limits, ["a1", "a2", "a3", "a4"], by="crawler#3") == SHARE_FULL
    without = given(server_started(queued=8), *(submitted(f"t{n}") for n in range(7)))
    without.when_submitting(ECHO._replace(by=LOCAL)).then(accepted(8))


def test_when_both_are_full_the_global_queue_is_named() -> None:
    story = given(server_started(queued=1, queued_per_agent=1), submitted())
    story.when_submitting(ECHO).then(refused(GLOBAL_FULL))


def test_a_rejection_names_who_was_refused_and_keeps_nothing_of_the_body() -> None:
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


# -- what a task asks for beyond the plain


def submission(command: SubmitTask, **known: Any) -> e.TaskSubmitted:
    """The submission of a command to an empty server."""
    state = given().state
    event = decide_submission(state.backlog, state.control.limits, command, "new", **known)
    assert isinstance(event, e.TaskSubmitted)
    return event


def test_the_plan_of_a_task_is_recorded() -> None:
    event = submission(
        changed(
            ECHO,
            key="shop",
            retry={"max_attempts": 3},
            queue_timeout_ms=7,
            not_before=START_US,
            preempt=True,
            idempotency="i",
            digest="d",
            dedup=Dedup("x", 500),
        ),
        at=START_US,
        depends={"one": "t1", "two": "t2"},
        prospects=Prospects(("t2",)),
    )
    assert event == changed(
        accepted(1),
        key="shop",
        retry={"max_attempts": 3},
        queue_timeout_ms=7,
        not_before=START_US,
        preempt=True,
        idempotency="i",
        digest="d",
        dedup="x",
        dedup_until=START_US + 500,
        depends={"one": "t1", "two": "t2"},
        waits=["t2"],
    )


def test_a_plain_task_says_nothing_of_a_plan() -> None:
    plain = changed(ECHO, digest="of no use without a key")
    assert submission(plain, prospects=Prospects(())) == accepted(1)


def test_a_dedup_key_without_a_time_holds_only_while_its_task_is_active() -> None:
    event = submission(ECHO._replace(dedup=Dedup("x")), at=START_US)
    assert event.plan == Plan(dedup="x")


def test_a_chosen_id_is_the_tasks_id() -> None:
    state = given().state
    wanted = ECHO._replace(wanted_id="mine")
    event = decide_submission(state.backlog, state.control.limits, wanted, "mine")
    assert event.task == "mine"


@pytest.mark.parametrize(
    "waiting",
    [
        (submitted(waits=["p"], depends={"p": "p"}),),
        (submitted(not_before=START_US * 2),),
        (submitted(), assigned(), attempt_failed(next_at=START_US * 2)),
    ],
    ids=["blocked", "delayed", "backing off"],
)
def test_a_task_that_waits_outside_the_order_fills_the_queue_like_any_other(
    waiting: tuple[e.Event, ...],
) -> None:
    given(server_started(queued=1), *waiting).when_submitting(ECHO).then(refused(GLOBAL_FULL))
    story = given(server_started(queued_per_agent=1), *waiting)
    story.when_submitting(ECHO).then(refused(AGENT_FULL))
    given(server_started(queued=2), *waiting).when_submitting(ECHO).then(accepted(2))


def test_a_retry_goes_back_into_a_queue_that_has_filled_up() -> None:
    story = given(
        server_started(queued=1, queued_per_agent=1),
        submitted(),
        assigned(),
        submitted("t2"),
        attempt_failed(next_at=START_US),
        released(after="backoff"),
    )
    assert (story.state.backlog.total, story.state.backlog.of_agent("a1")) == (2, 2)
    story.when_submitting(ECHO).then(refused(GLOBAL_FULL))


# -- whether there is room for several


def full(story: Given, *agents: str) -> str | None:
    """Ask whether one more task of each agent would fit."""
    return why_full(story.state.backlog, story.state.control.limits, agents)


def test_a_batch_needs_room_for_all_of_it() -> None:
    story = given(server_started(queued=3), submitted())
    assert full(story, "a1", "a2") is None
    assert full(story, "a1", "a2", "a3") == GLOBAL_FULL


def test_a_batch_needs_room_at_each_of_its_agents() -> None:
    story = given(server_started(queued_per_agent=2), submitted())
    assert full(story, "a1", "a2", "a2") is None
    assert full(story, "a1", "a2", "a1") == AGENT_FULL
    assert full(story, "a2", "a2", "a2") == AGENT_FULL


def test_one_task_fits_where_a_submission_would() -> None:
    for taken in range(4):
        story = given(server_started(queued=2), *(submitted(f"t{n}") for n in range(taken)))
        refused_alone = taken >= 2
        assert (full(story, "a1") is not None) == refused_alone


# -- batches


def batch(story: Given, *tasks: SubmitTask, **fields: Any) -> list[e.TaskSubmitted]:
    """Decide a batch `b1` of tasks `n0`, `n1` and so on."""
    ids = [f"n{at}" for at in range(len(tasks))]
    events, _ = decide_batch(
        SubmitBatch(tasks, **fields),
        "b1",
        ids,
        waiting=story.state.backlog.total,
        find=story.state.tasks.get,
        graph=story.state.graph,
    )
    return events


def plan_of(event: e.TaskSubmitted) -> Plan:
    """The plan that every item of a batch has."""
    assert event.plan is not None
    return event.plan


def test_the_tasks_of_a_batch_are_numbered_behind_what_waits() -> None:
    events = batch(given(submitted()), ECHO, ECHO._replace(agent="a2"))
    assert [(event.task, event.position) for event in events] == [("n0", 2), ("n1", 3)]
    assert {plan_of(event).batch for event in events} == {"b1"}
    assert {event.waits for event in events} == {None}


def test_the_bound_of_a_batch_is_in_each_of_its_tasks() -> None:
    events = batch(given(), ECHO, ECHO, parallelism=1)
    assert [plan_of(event).parallelism for event in events] == [1, 1]


def test_items_depend_on_each_other_by_ref_by_index_and_on_others_by_id() -> None:
    events = batch(
        given(submitted(), assigned(), submitted("t2"), succeeded()),
        ECHO._replace(ref="first"),
        ECHO._replace(depends=("ref:first",)),
        ECHO._replace(depends=(0, 1, "t1", "t2")),
    )
    assert [plan_of(event).depends for event in events] == [
        None,
        {"first": "n0"},
        {"0": "n0", "first": "n0", "1": "n1", "t1": "t1", "t2": "t2"},
    ]
    assert [event.waits for event in events] == [None, ["n0"], ["n0", "n1", "t2"]]


def test_an_item_may_depend_on_one_that_comes_after_it() -> None:
    events = batch(given(), ECHO._replace(depends=(1,)), ECHO)
    assert [event.waits for event in events] == [["n1"], None]


def test_a_cycle_inside_a_batch_is_refused_with_its_path() -> None:
    with pytest.raises(InvalidRequest, match="cycle: item 0 -> item 1 -> item 0") as caught:
        batch(given(), ECHO._replace(depends=(1,)), ECHO._replace(depends=(0,)))
    assert caught.value.code == "dependency_cycle"
    assert caught.value.details == {"path": ["item 0", "item 1", "item 0"]}


def test_an_item_that_depends_on_itself_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cycle: item 0 -> item 0"):
        batch(given(), ECHO._replace(depends=(0,)))


def test_a_cycle_that_closes_through_a_task_that_waits_already_is_refused() -> None:
    story = given(submitted(waits=["n1"], depends={"n1": "n1"}))
    with pytest.raises(InvalidRequest, match="n1 -> t1 -> n1"):
        batch(story, ECHO, ECHO._replace(depends=("t1",), wanted_id="n1"))


def test_a_cycle_shows_the_names_that_its_client_gave() -> None:
    items = (ECHO._replace(ref="a", depends=(1,)), ECHO._replace(wanted_id="n1", depends=(0,)))
    with pytest.raises(InvalidRequest, match="cycle: ref:a -> n1 -> ref:a"):
        batch(given(), *items)


@pytest.mark.parametrize(
    ("depends", "words"),
    [
        ((3,), "there is no item 3 in this batch"),
        ((-1,), "there is no item -1 in this batch"),
        (("ref:nobody",), "no item of this batch has the ref 'nobody'"),
        (("ref:twin",), "more than one item of this batch has the ref 'twin'"),
    ],
)
def test_a_dependency_that_names_no_item_is_refused(
    depends: tuple[str | int, ...], words: str
) -> None:
    twin = ECHO._replace(ref="twin")
    with pytest.raises(InvalidRequest, match=words) as caught:
        batch(given(), twin, twin, ECHO._replace(depends=depends))
    assert caught.value.details["field"] == "dependsOn"


@pytest.mark.parametrize(
    ("refs", "depends", "waits"),
    [
        (("twin", "twin"), (0, 1), {"n0", "n1"}),
        ((None, "0"), (0, 1), {"n0", "n1"}),
        (("t1", None), (0, "t1"), {"n0", "t1"}),
        (("t1", None), ("t1", "ref:t1"), {"n0", "t1"}),
    ],
)
def test_dependencies_of_the_same_name_are_all_waited_for(
    refs: tuple[str | None, ...], depends: tuple[str | int, ...], waits: set[str]
) -> None:
    """Two items with one ref, an index that is also a ref, an id that is also a ref."""
    items = [ECHO._replace(ref=ref) for ref in refs]
    events = batch(given(submitted()), *items, ECHO._replace(depends=depends))
    assert set(events[-1].waits or ()) == waits


def test_items_of_a_batch_are_not_missing_to_each_other() -> None:
    strict = ECHO._replace(depends=(0,), on_missing="fail")
    assert batch(given(), ECHO, strict)[1].waits == ["n0"]
    with pytest.raises(InvalidRequest, match="there is no task 'nobody'"):
        batch(given(), ECHO, ECHO._replace(depends=("nobody",), on_missing="fail"))


def test_an_item_that_depends_on_what_has_failed_is_doomed() -> None:
    story = given(submitted(), assigned(), failed())
    command = SubmitBatch((ECHO, ECHO._replace(depends=("t1",))))
    _, prospects = decide_batch(
        command,
        "b1",
        ["n0", "n1"],
        waiting=0,
        find=story.state.tasks.get,
        graph=story.state.graph,
    )
    assert [each.doomed_by for each in prospects] == [None, story.task]


def test_a_batch_records_what_was_asked() -> None:
    command = SubmitBatch((ECHO,), "native", 2, "https://x.example", "ann", "i", "d")
    assert submitted_batch(command, "b1", ["n0"]) == e.BatchSubmitted(
        "b1", ["n0"], "native", 2, "https://x.example", "i", "d"
    )
    keyless = command._replace(idempotency=None)
    assert submitted_batch(keyless, "b1", ["n0"]).digest is None


# -- keys


def test_the_same_request_under_one_idempotency_key_is_the_same() -> None:
    check_same("i", "digest", "digest")
    check_same("i", None, None)


@pytest.mark.parametrize(("digest", "known"), [("a", "b"), (None, "b"), ("a", None)])
def test_another_request_under_a_known_idempotency_key_is_refused(
    digest: str | None, known: str | None
) -> None:
    with pytest.raises(Unprocessable, match="key 'i' was used for a different request") as caught:
        check_same("i", digest, known)
    assert (caught.value.code, caught.value.status) == ("idempotency_conflict", 422)
    assert caught.value.details == {"idempotencyKey": "i"}


def test_a_duplicate_is_told_which_task_holds_its_key() -> None:
    error = duplicate("x", "t1")
    assert (error.code, error.status) == ("duplicate", 409)
    assert error.details == {"taskId": "t1", "dedupKey": "x"}
