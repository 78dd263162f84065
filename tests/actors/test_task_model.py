"""The task model through the real actors: retries, delays, dependencies, batches, keys, pauses.

Each story runs on a bench (a whole shard over a log in memory) and ends with a look at the log: the
state is what a replay makes of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from actors.bench import BAD, GOOD, Bench
from pykka import ActorRegistry
from support.wishes import changed

from rota.actors import messages as m
from rota.actors.dependents import SLICE_TASKS
from rota.actors.runtime import body_of
from rota.domain.commands import Dedup, Limits
from rota.domain.delivery import DeliveryReport
from rota.domain.intake import Request
from rota.errors import Conflict, InvalidRequest, NotFound, QueueFull, Unprocessable
from rota.executors.port import Note

if TYPE_CHECKING:
    from collections.abc import Iterator

ECHO = Request("ann", "echo", "builtin")
RETRY = {"kind": "linear", "base_ms": 1000, "max_attempts": 3}
S = 1_000_000
HOOK = "https://one.example/hook"


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[Bench] = []

    def bench(limits: Limits | None = None, **options: Any) -> Bench:
        made.append(Bench(limits, **options))
        return made[-1]

    yield bench
    for each in made:
        each.host.run()
        each.check_replay()
        each.close()
    assert ActorRegistry.get_all() == []


@pytest.fixture
def bench(make: Any) -> Bench:
    found: Bench = make()
    return found


# -- retries


def test_a_failed_attempt_is_tried_again_after_its_pause_until_it_succeeds(bench: Bench) -> None:
    task = bench.submit(changed(ECHO, retry=RETRY))
    bench.end(task, BAD)
    assert (bench.state(task), bench.running) == ("scheduled", [])
    bench.wait(0.999)
    assert bench.running == []
    bench.wait(0.001)
    assert bench.running == [task]
    bench.end(task, BAD)
    bench.wait(1.999)
    assert bench.running == []
    bench.wait(0.001)
    bench.end(task)
    assert (bench.state(task), bench.task(task).attempt) == ("succeeded", 3)
    assert bench.kinds(task) == [
        "TaskSubmitted",
        *("TaskAssigned", "TaskStarted", "AttemptFailed", "TaskReleased") * 2,
        *("TaskAssigned", "TaskStarted", "TaskSucceeded"),
    ]


def test_the_last_attempt_fails_the_task(bench: Bench) -> None:
    task = bench.submit(changed(ECHO, retry=RETRY))
    for _ in range(3):
        bench.end(task, BAD)
        bench.wait(10)
    assert (bench.state(task), bench.task(task).error_code) == ("failed", "boom")
    assert len(bench.runner.started) == 3


def test_jitter_is_drawn_for_each_retry(make: Any) -> None:
    bench = make(draw=lambda: 0.5)
    task = bench.submit(changed(ECHO, retry={**RETRY, "jitter_ms": 1000}))
    bench.end(task, BAD)
    assert bench.task(task).next_at - bench.host.clock.now_us() == 1_500_000


def test_a_task_that_backs_off_holds_no_slot(make: Any) -> None:
    bench = make(Limits(inflight=1))
    flaky, other = bench.submit(changed(ECHO, retry=RETRY)), bench.submit(ECHO)
    bench.end(flaky, BAD)
    assert bench.running == [other]


def test_an_attempt_that_times_out_is_aborted_and_tried_again(bench: Bench) -> None:
    task = bench.submit(changed(ECHO, retry=RETRY, timeout_ms=500))
    bench.wait(0.5)
    assert bench.runner.aborted == [(task, "attempt timed out after 500 ms")]
    assert bench.state(task) == "scheduled"
    bench.wait(1)
    assert bench.running == [task]


def test_a_cancel_wins_over_a_retry(bench: Bench) -> None:
    task = bench.submit(changed(ECHO, retry=RETRY))
    bench.end(task, BAD)
    bench.cancel(task)
    bench.wait(100)
    assert (bench.state(task), len(bench.runner.started)) == ("cancelled", 1)


def test_a_deadline_ends_a_task_that_backs_off(bench: Bench) -> None:
    deadline = bench.host.clock.now_us() + 500_000
    task = bench.submit(changed(ECHO, retry=RETRY, deadline=deadline))
    bench.end(task, BAD)
    bench.wait(0.5)
    assert (bench.state(task), bench.task(task).error_code) == ("failed", "deadline_exceeded")


def test_a_retry_goes_into_a_queue_that_is_full(make: Any) -> None:
    bench = make(Limits(inflight=1, queued=1))
    flaky = bench.submit(changed(ECHO, retry=RETRY, priority=0))
    bench.submit(ECHO)
    bench.pause_scheduler()
    bench.end(flaky, BAD)
    assert bench.shard.state.backlog.total == 2
    bench.wait(1)
    assert bench.state(flaky) == "ready"
    bench.pause_scheduler(paused=False)
    assert bench.running == [flaky]


def test_a_backoff_outlives_a_crash(bench: Bench) -> None:
    task = bench.submit(changed(ECHO, retry=RETRY))
    bench.end(task, BAD)
    bench.crash()
    assert bench.state(task) == "scheduled"
    bench.wait(1)
    assert bench.running == [task]


# -- delays and queue timeouts


def test_a_task_starts_at_its_moment_and_not_before(bench: Bench) -> None:
    moment = bench.host.clock.now_us() + 5_000_000
    task = bench.submit(changed(ECHO, not_before=moment))
    bench.wait(4.999)
    bench.crash()
    assert (bench.state(task), bench.running) == ("scheduled", [])
    bench.wait(0.001)
    assert bench.running == [task]


def test_a_task_that_waits_too_long_in_its_queue_expires(make: Any) -> None:
    bench = make(Limits(inflight=1))
    running = bench.submit(ECHO)
    hasty = bench.submit(changed(ECHO, queue_timeout_ms=2000))
    bench.wait(1.999)
    assert bench.state(hasty) == "ready"
    bench.wait(0.001)
    assert (bench.state(hasty), bench.task(hasty).error_code) == (
        "failed",
        "queue_timeout_exceeded",
    )
    bench.end(running)
    assert bench.running == []


def test_the_queue_timeout_counts_only_the_time_a_task_is_ready(make: Any) -> None:
    bench = make(Limits(inflight=1))
    moment = bench.host.clock.now_us() + 10_000_000
    blocker = bench.submit(ECHO)
    late = bench.submit(changed(ECHO, queue_timeout_ms=2000, not_before=moment))
    child = bench.submit(changed(ECHO, queue_timeout_ms=2000, depends=(blocker,)))
    bench.wait(11.999)
    assert (bench.state(late), bench.state(child)) == ("ready", "blocked")
    bench.wait(0.001)
    assert (bench.state(late), bench.state(child)) == ("failed", "blocked")


def test_a_queue_timeout_outlives_a_crash(make: Any) -> None:
    bench = make(start_paused=True)
    task = bench.submit(changed(ECHO, queue_timeout_ms=2000))
    bench.wait(1)
    bench.crash()
    bench.wait(1)
    assert bench.state(task) == "failed"


# -- dependencies


def test_a_child_starts_when_its_parents_have_succeeded(bench: Bench) -> None:
    one, two = bench.submit(ECHO), bench.submit(ECHO)
    child = bench.submit(ECHO._replace(depends=(one, two)))
    bench.end(one)
    assert bench.state(child) == "blocked"
    bench.end(two)
    assert bench.running == [child]


def test_a_child_gets_what_its_parents_leave_it(bench: Bench) -> None:
    parent = bench.submit(ECHO)
    params = {"url": "{{" + parent + ".url}}", "text": "at {{" + parent + ".n}}", "plain": 1}
    bench.submit(ECHO._replace(depends=(parent,), params=params))
    bench.end(parent, GOOD._replace(result={"url": "https://x.example", "n": 7}))
    [_, attempt] = bench.runner.started
    assert attempt.params == {"url": "https://x.example", "text": "at 7", "plain": 1}


def test_a_child_gets_the_result_of_a_parent_that_has_left_memory(make: Any) -> None:
    bench = make(Limits(result_ttl_s=1))
    parent = bench.submit(ECHO)
    bench.end(parent, GOOD._replace(result="kept"))
    bench.wait(60)
    bench.submit(ECHO)
    assert bench.shard.state.tasks.get(parent) is None
    child = bench.submit(ECHO._replace(depends=(parent,), params={"x": "{{" + parent + "}}"}))
    attempt, _, _ = bench.runner.running[child]
    assert attempt.params == {"x": "kept"}


def test_a_child_whose_params_grow_too_large_fails_without_a_retry(bench: Bench) -> None:
    parent = bench.submit(ECHO)
    params = {"x": ["{{" + parent + "}}"] * 9}
    child = bench.submit(changed(ECHO, depends=(parent,), params=params, retry=RETRY))
    bench.end(parent, GOOD._replace(result="x" * (1 << 20)))
    assert (bench.state(child), bench.task(child).error_code) == ("failed", "bad_params")
    assert bench.shard.state.slots.total == 0


def test_what_depends_on_a_failure_is_cancelled_all_the_way_down(bench: Bench) -> None:
    parent = bench.submit(ECHO)
    child = bench.submit(ECHO._replace(depends=(parent,)))
    grandchild = bench.submit(ECHO._replace(depends=(child,), agent="bob"))
    bench.end(parent, BAD)
    for task, reason in (
        (child, f"dependency {parent} failed"),
        (grandchild, f"dependency {child} was cancelled"),
    ):
        found = bench.task(task)
        assert (found.state.value, found.error_code) == ("cancelled", "dependency_failed")
        assert found.error == reason


def test_a_child_of_what_has_failed_already_is_cancelled_as_it_comes(bench: Bench) -> None:
    parent = bench.submit(ECHO)
    bench.end(parent, BAD)
    child = bench.submit(ECHO._replace(depends=(parent,)))
    assert (bench.state(child), bench.task(child).error_code) == ("cancelled", "dependency_failed")


def test_a_missing_parent_is_waited_for_and_may_still_come(bench: Bench) -> None:
    child = bench.submit(ECHO._replace(depends=("mine",)))
    bench.wait(3600)
    assert bench.state(child) == "blocked"
    with pytest.raises(InvalidRequest, match="there is no task 'mine'"):
        bench.submit(ECHO._replace(depends=("mine",), on_missing="fail"))
    bench.submit(ECHO._replace(wanted_id="mine"))
    bench.end("mine")
    assert bench.running == [child]


def test_a_task_that_would_close_a_cycle_is_refused_and_leaves_no_trace(bench: Bench) -> None:
    bench.submit(ECHO._replace(wanted_id="a", depends=("b",)))
    bench.submit(ECHO._replace(wanted_id="b", depends=("c",)))
    seq = bench.shard.state.seq
    with pytest.raises(InvalidRequest, match="c -> a -> b -> c") as caught:
        bench.submit(ECHO._replace(wanted_id="c", depends=("a",)))
    assert caught.value.code == "dependency_cycle"
    assert bench.shard.state.seq == seq
    with pytest.raises(InvalidRequest, match="d -> d"):
        bench.submit(ECHO._replace(wanted_id="d", depends=("d",)))


def test_an_id_is_given_once(bench: Bench) -> None:
    bench.submit(ECHO._replace(wanted_id="mine"))
    with pytest.raises(Conflict, match="there is a task 'mine' already") as caught:
        bench.submit(ECHO._replace(wanted_id="mine"))
    assert caught.value.code == "id_taken"
    bench.end("mine")
    bench.wait(10_000)
    bench.submit(ECHO)
    assert bench.shard.state.tasks.get("mine") is None
    with pytest.raises(Conflict, match="there is a task 'mine' already"):
        bench.submit(ECHO._replace(wanted_id="mine"))


def test_an_id_that_was_wanted_in_vain_stays_free(make: Any) -> None:
    bench = make(Limits(inflight=1, queued=1))
    running = bench.submit(ECHO)
    waiting = bench.submit(ECHO)
    [refused] = bench.offer(ECHO._replace(wanted_id="mine"))
    assert isinstance(refused, m.Refused)
    assert refused.task != "mine"
    bench.end(running)
    bench.end(waiting)
    assert bench.submit(ECHO._replace(wanted_id="mine")) == "mine"


def test_a_delayed_child_waits_for_both_its_parent_and_its_moment(bench: Bench) -> None:
    moment = bench.host.clock.now_us() + 5_000_000
    parent = bench.submit(ECHO)
    child = bench.submit(changed(ECHO, depends=(parent,), not_before=moment))
    bench.end(parent)
    assert (bench.state(child), bench.kinds(child)[-1]) == ("scheduled", "TaskDelayed")
    bench.wait(5)
    assert bench.running == [child]


def test_a_thousand_children_are_settled_a_slice_at_a_time(make: Any) -> None:
    """The loop has a turn after each slice; and all of them are settled in the end."""
    bench = make(Limits(queued=10_000, queued_per_agent=10_000))
    parent = bench.submit(ECHO)
    children = [bench.submit(ECHO._replace(depends=(parent,))) for _ in range(1000)]
    before = bench.host.turns
    bench.end(parent, BAD)
    assert {bench.state(child) for child in children} == {"cancelled"}
    assert bench.host.turns - before >= 1000 // SLICE_TASKS


def test_what_was_due_at_a_crash_is_settled_after_it(bench: Bench) -> None:
    parent = bench.submit(ECHO)
    children = [bench.submit(ECHO._replace(depends=(parent,))) for _ in range(20)]
    _, ended, _ = bench.runner.running.pop(parent)
    ended(BAD)
    pool = body_of(bench.shard.pool)
    pool.on_receive(pool.actor_inbox.get())
    bench.shard.journal.flush()
    assert bench.state(parent) == "failed"
    assert {bench.state(child) for child in children} == {"blocked"}
    bench.crash()
    assert {bench.state(child) for child in children} == {"cancelled"}


# -- batches


def test_a_batch_is_admitted_whole_and_finished_once(bench: Bench) -> None:
    answer = bench.submit_batch(
        ECHO._replace(ref="one"), ECHO._replace(depends=("ref:one",)), callback=HOOK
    )
    one, two = (task.task for task in answer.tasks)
    assert [task.state for task in answer.tasks] == ["ready", "blocked"]
    bench.end(one)
    bench.end(two)
    assert bench.kinds(answer.batch) == ["BatchSubmitted", "BatchFinished"]
    batch = bench.shard.state.batches.by_id[answer.batch]
    assert batch.fates == {"succeeded": 2, "failed": 0, "cancelled": 0}
    assert [subject for subject, _, _ in bench.courier.sent] == [answer.batch]


def test_a_batch_that_does_not_fit_is_rejected_whole(make: Any) -> None:
    bench = make(Limits(inflight=1, queued=2))
    bench.submit(ECHO)
    bench.submit(ECHO)
    with pytest.raises(QueueFull, match="global queue full") as caught:
        bench.submit_batch(ECHO, ECHO)
    batch = caught.value.details["batchId"]
    assert bench.kinds(batch) == ["BatchRejected"]
    assert len(bench.shard.state.tasks) == 2
    assert len(bench.submit_batch(ECHO).tasks) == 1


def test_a_batch_with_a_cycle_leaves_no_trace(bench: Bench) -> None:
    seq = bench.shard.state.seq
    with pytest.raises(InvalidRequest, match="cycle"):
        bench.submit_batch(ECHO._replace(depends=(1,)), ECHO._replace(depends=(0,)))
    assert bench.shard.state.seq == seq


def test_a_bounded_batch_runs_so_many_at_once(make: Any) -> None:
    bench = make(Limits(inflight=20, push=20))
    answer = bench.submit_batch(*[ECHO._replace(agent=f"a{n}") for n in range(5)], parallelism=2)
    tasks = [task.task for task in answer.tasks]
    seen: list[str] = []
    for _ in tasks:
        assert len(bench.running) == min(2, len(tasks) - len(seen))
        seen.append(bench.running[0])
        bench.end(bench.running[0])
    assert sorted(seen) == sorted(tasks)


def test_a_cancelled_batch_ends_what_has_not_ended(make: Any) -> None:
    bench = make(Limits(inflight=1))
    answer = bench.submit_batch(ECHO, ECHO, ECHO._replace(depends=(1,)))
    first, second, third = (task.task for task in answer.tasks)
    bench.end(first)

    def cancel() -> Any:
        admission = bench.shard.admission
        return bench.ask(admission, lambda reply: m.CancelBatch(answer.batch, "", "", reply))

    assert cancel() == 2
    assert [bench.task(task).error_code for task in (second, third)] == ["batch_cancelled"] * 2
    assert bench.kinds(answer.batch)[-1] == "BatchFinished"
    assert bench.running == []
    with pytest.raises(Conflict, match="already finished"):
        cancel()
    with pytest.raises(NotFound, match="batch not found"):
        bench.ask(bench.shard.admission, lambda reply: m.CancelBatch("nobody", "", "", reply))


def test_a_batch_whose_tasks_are_all_doomed_finishes_at_once(bench: Bench) -> None:
    parent = bench.submit(ECHO)
    bench.end(parent, BAD)
    answer = bench.submit_batch(ECHO._replace(depends=(parent,)), ECHO._replace(depends=(0,)))
    assert bench.kinds(answer.batch) == ["BatchSubmitted", "BatchFinished"]


def test_a_batch_that_ended_in_a_crash_is_finished_after_it(bench: Bench) -> None:
    answer = bench.submit_batch(ECHO)
    [task] = answer.tasks
    _, ended, _ = bench.runner.running.pop(task.task)
    ended(GOOD)
    pool = body_of(bench.shard.pool)
    pool.on_receive(pool.actor_inbox.get())
    bench.shard.journal.flush()
    assert bench.kinds(answer.batch) == ["BatchSubmitted"]
    bench.crash()
    assert bench.kinds(answer.batch) == ["BatchSubmitted", "BatchFinished"]


# -- keys


def test_a_repeat_under_an_idempotency_key_gives_the_first_task(bench: Bench) -> None:
    once = changed(ECHO, idempotency="i", digest="d", by="ann")
    task = bench.submit(once)
    for _ in range(2):
        [answer] = bench.offer(once)
        assert (answer.task, answer.known) == (task, "idempotent")
        bench.crash()
    assert bench.submit(once._replace(by="bob")) != task
    with pytest.raises(Unprocessable, match="used for a different request") as caught:
        bench.submit(changed(once, digest="other"))
    assert caught.value.code == "idempotency_conflict"


def test_an_idempotency_key_is_good_for_a_day_after_the_end(make: Any) -> None:
    bench = make(Limits(result_ttl_s=1))
    once = changed(ECHO, idempotency="i", digest="d")
    task = bench.submit(once)
    bench.wait(48 * 3600)
    assert bench.offer(once)[0].task == task
    bench.end(task)
    bench.wait(24 * 3600 - 1)
    [answer] = bench.offer(once)
    assert (answer.task, answer.state, answer.known) == (task, "succeeded", "idempotent")
    bench.wait(1)
    assert bench.submit(once) != task


def test_one_request_with_a_key_twice_makes_one_task(bench: Bench) -> None:
    once = changed(ECHO, idempotency="i", digest="d")
    one, two = bench.offer(once, once)
    assert (one.task, one.known, two.known) == (two.task, "", "idempotent")
    assert len(bench.shard.state.tasks) == 1


def test_a_rejected_task_leaves_its_key_free(make: Any) -> None:
    bench = make(Limits(inflight=1, queued=1))
    once = changed(ECHO, idempotency="i", digest="d")
    running = bench.submit(ECHO)
    bench.submit(ECHO)
    [refused] = bench.offer(once)
    assert isinstance(refused, m.Refused)
    bench.end(running)
    [answer] = bench.offer(once)
    assert (type(answer), answer.known) == (m.Admitted, "")


def test_a_repeated_batch_is_the_same_batch(bench: Bench) -> None:
    answer = bench.submit_batch(ECHO, ECHO, idempotency="i", digest="d")
    again = bench.submit_batch(ECHO, ECHO, idempotency="i", digest="d")
    assert (again.batch, again.known) == (answer.batch, "idempotent")
    assert [task.task for task in again.tasks] == [task.task for task in answer.tasks]
    with pytest.raises(Unprocessable, match="different request"):
        bench.submit_batch(ECHO, idempotency="i", digest="e")
    with pytest.raises(Unprocessable, match="used for a batch"):
        bench.submit(changed(ECHO, idempotency="i", digest="d"))
    bench.submit(changed(ECHO, idempotency="single", digest="d"))
    with pytest.raises(Unprocessable, match="used for a single task"):
        bench.submit_batch(ECHO, idempotency="single", digest="d")


def test_a_duplicate_is_refused_or_given_the_active_one(bench: Bench) -> None:
    alone = ECHO._replace(dedup=Dedup("x"))
    task = bench.submit(alone)
    with pytest.raises(Conflict, match="the dedup key 'x' exists already") as caught:
        bench.submit(alone)
    assert (caught.value.code, caught.value.details["taskId"]) == ("duplicate", task)
    [answer] = bench.offer(alone._replace(dedup=Dedup("x", mode="return")))
    assert (answer.task, answer.known) == (task, "deduplicated")
    bench.end(task)
    assert bench.submit(alone) != task


def test_a_dedup_key_with_a_time_is_held_from_the_submission(bench: Bench) -> None:
    alone = ECHO._replace(dedup=Dedup("x", 10_000_000))
    task = bench.submit(alone)
    bench.wait(9)
    bench.end(task)
    with pytest.raises(Conflict, match="exists already"):
        bench.submit(alone)
    bench.wait(1)
    assert bench.submit(alone) != task


def test_a_replacement_cancels_the_active_one(make: Any) -> None:
    bench = make(Limits(inflight=1))
    alone = ECHO._replace(dedup=Dedup("x", mode="replace"))
    first = bench.submit(alone)
    second = bench.submit(alone)
    found = bench.task(first)
    assert (found.state.value, found.error_code) == ("cancelled", "replaced")
    assert found.error == f"replaced by {second}"
    assert bench.running == [second]
    third = bench.submit(alone)
    assert (bench.state(second), bench.running) == ("cancelled", [third])


def test_a_replacement_that_finds_no_room_replaces_nothing(make: Any) -> None:
    bench = make(Limits(inflight=1, queued=1))
    alone = ECHO._replace(dedup=Dedup("x", mode="replace"))
    first = bench.submit(alone)
    bench.submit(ECHO)
    [refused] = bench.offer(alone)
    assert isinstance(refused, m.Refused)
    assert bench.state(first) == "running"


def test_a_replacement_that_depends_on_what_it_replaces_does_not_wait_for_ever(
    bench: Bench,
) -> None:
    alone = ECHO._replace(dedup=Dedup("x", mode="replace"))
    first = bench.submit(alone)
    second = bench.submit(alone._replace(depends=(first,)))
    assert (bench.state(first), bench.state(second)) == ("cancelled", "cancelled")
    assert bench.task(second).error_code == "dependency_failed"


# -- new lives


def test_a_revived_task_runs_again_with_all_its_attempts(bench: Bench) -> None:
    task = bench.submit(changed(ECHO, retry={**RETRY, "max_attempts": 2}))
    for _ in range(2):
        bench.end(task, BAD)
        bench.wait(10)
    assert bench.state(task) == "failed"
    bench.revive(task)
    assert bench.running == [task]
    bench.end(task, BAD)
    bench.wait(10)
    bench.end(task)
    assert (bench.state(task), bench.task(task).attempt) == ("succeeded", 4)
    with pytest.raises(Conflict, match="this one is succeeded"):
        bench.revive(task)


def test_a_revival_needs_room_in_the_queue(make: Any) -> None:
    bench = make(Limits(inflight=1, queued=1))
    lost = bench.submit(ECHO)
    bench.submit(ECHO)
    bench.end(lost, BAD)
    bench.submit(ECHO)
    with pytest.raises(QueueFull, match="queue full"):
        bench.revive(lost)


def test_a_revived_task_tells_its_receiver_of_its_second_end_too(bench: Bench) -> None:
    """Also if the first callback is still on its way when the second is due."""
    task = bench.submit(ECHO._replace(callback=HOOK))
    bench.end(task, BAD)
    [(_, state, done)] = bench.courier.sent
    assert state == "failed"
    bench.revive(task)
    bench.end(task)
    done(DeliveryReport(ok=True, status=200))
    bench.host.run()
    assert [state for _, state, _ in bench.courier.sent] == ["failed", "succeeded"]
    bench.courier.sent[-1][2](DeliveryReport(ok=True, status=200))
    bench.host.run()


def test_a_parent_revived_before_its_children_are_settled_dooms_them_by_its_failure(
    make: Any,
) -> None:
    """They are told that it failed, whatever has become of it since."""
    bench = make(Limits(queued=10_000, queued_per_agent=10_000))
    parent = bench.submit(ECHO)
    children = [bench.submit(ECHO._replace(depends=(parent,))) for _ in range(3 * SLICE_TASKS)]
    _, ended, _ = bench.runner.running.pop(parent)
    ended(BAD)
    bench.host.soon.popleft()()
    queue = bench.shard.queue("ann")
    bench.ask(queue, lambda reply: m.ReviveTask(parent, "", reply))
    assert {bench.task(child).error for child in children} == {f"dependency {parent} failed"}


def test_who_ran_out_of_time_before_its_turn_is_not_revived(bench: Bench) -> None:
    parent = bench.submit(ECHO)
    soon = bench.host.clock.now_us() + 5 * S
    child = bench.submit(ECHO._replace(depends=(parent,), deadline=soon))
    later = bench.submit(changed(ECHO, not_before=soon + 60 * S, deadline=soon))
    bench.wait(6)
    assert (bench.state(child), bench.state(later)) == ("failed", "failed")
    for task in (child, later):
        with pytest.raises(Conflict, match="deadline has passed"):
            bench.revive(task)


def test_a_task_that_waited_too_long_can_wait_again(make: Any) -> None:
    bench = make(Limits(inflight=1))
    running = bench.submit(ECHO)
    task = bench.submit(changed(ECHO, queue_timeout_ms=1000))
    bench.wait(2)
    assert bench.task(task).error_code == "queue_timeout_exceeded"
    bench.revive(task)
    assert bench.state(task) == "ready"
    bench.end(running)
    assert bench.running == [task]


def test_a_task_is_not_revived_beside_another_of_its_dedup_key(bench: Bench) -> None:
    alone = ECHO._replace(dedup=Dedup("x"))
    first = bench.submit(alone)
    bench.end(first, BAD)
    second = bench.submit(alone)
    with pytest.raises(Conflict, match="dedup key 'x'"):
        bench.revive(first)
    assert bench.running == [second]


def test_the_key_of_a_batch_is_held_while_one_of_its_tasks_lives_again(bench: Bench) -> None:
    batch = bench.submit_batch(ECHO, idempotency="k", digest="d")
    (task,) = (each.task for each in batch.tasks)
    bench.end(task, BAD)
    bench.revive(task)
    bench.wait(25 * 3600)
    fresh = bench.submit_batch(ECHO, idempotency="k", digest="d")
    assert (fresh.batch, fresh.known) == (batch.batch, "idempotent")


def test_what_is_overdue_after_a_restart_ends_instead_of_being_dispatched(make: Any) -> None:
    bench = make(Limits(inflight=1))
    running = bench.submit(ECHO)
    late = bench.submit(ECHO._replace(deadline=bench.host.clock.now_us() + 5 * S))
    tired = bench.submit(changed(ECHO, queue_timeout_ms=1000))
    good = bench.submit(ECHO)
    bench.crash(away_s=3600)
    assert bench.running == [running]
    bench.end(running)
    assert bench.running == [good]
    assert bench.kinds(late)[1:] == ["TaskExpired"]
    assert bench.kinds(tired)[1:] == ["TaskExpired"]
    assert bench.task(late).error == "deadline exceeded while queued"


# -- pauses


def test_a_paused_scheduler_dispatches_nothing_until_it_is_resumed(bench: Bench) -> None:
    running = bench.submit(ECHO)
    bench.pause_scheduler()
    waiting = bench.submit(ECHO)
    bench.end(running)
    bench.crash()
    assert (bench.running, bench.state(waiting)) == ([], "ready")
    bench.pause_scheduler(paused=False)
    assert bench.running == [waiting]


def test_a_server_may_be_started_paused(make: Any) -> None:
    bench = make(start_paused=True)
    task = bench.submit(ECHO)
    assert bench.running == []
    bench.pause_scheduler(paused=False)
    assert bench.running == [task]


def test_a_paused_type_waits_and_others_go_on(bench: Bench) -> None:
    bench.pause_type("scan")
    held, other = bench.submit(ECHO._replace(action="scan")), bench.submit(ECHO)
    assert bench.running == [other]
    bench.crash()
    assert bench.running == [other]
    bench.pause_type("scan", paused=False)
    assert set(bench.running) == {held, other}


def test_a_pause_that_is_asked_for_twice_is_one(bench: Bench) -> None:
    for _ in range(2):
        bench.pause_type("scan")
        bench.pause_scheduler()
    kinds = [type(record.event).__name__ for record in bench.records()]
    assert (kinds.count("TypePaused"), kinds.count("SchedulerPaused")) == (1, 1)


# -- pre-emption


URGENT = changed(ECHO, priority=0, preempt=True)


def test_an_urgent_task_takes_the_place_of_a_less_urgent_one(make: Any) -> None:
    bench = make(Limits(inflight_per_agent=1))
    victim = bench.submit(ECHO)
    urgent = bench.submit(URGENT)
    assert bench.running == [urgent]
    assert bench.runner.aborted == [(victim, "preempted")]
    assert (bench.state(victim), bench.task(victim).attempt) == ("ready", 0)
    bench.end(urgent)
    assert bench.running == [victim]
    assert bench.task(victim).attempt == 1


def test_nobody_is_pushed_aside_where_there_is_room(bench: Bench) -> None:
    other = bench.submit(ECHO)
    urgent = bench.submit(URGENT)
    assert bench.running == [other, urgent]


def test_other_agents_are_not_pushed_aside(make: Any) -> None:
    bench = make(Limits(inflight=1))
    other = bench.submit(ECHO._replace(agent="bob", priority=9))
    bench.submit(URGENT)
    assert bench.running == [other]


def test_an_urgent_task_takes_a_place_although_another_is_ahead_of_it(make: Any) -> None:
    """Who is ahead of it may not take one by force, and gets the next that is free."""
    bench = make(Limits(inflight_per_agent=2))
    low, victim = bench.submit(ECHO._replace(priority=5)), bench.submit(ECHO._replace(priority=6))
    calm = bench.submit(ECHO._replace(priority=0))
    urgent = bench.submit(changed(ECHO, priority=1, preempt=True))
    assert bench.running == [low, urgent]
    assert bench.runner.aborted == [(victim, "preempted")]
    bench.end(low)
    assert bench.running == [urgent, calm]


@pytest.mark.parametrize("what", ["agent", "type", "scheduler"])
def test_an_urgent_task_that_was_paused_takes_a_place_when_it_may(make: Any, what: str) -> None:
    bench = make(Limits(inflight_per_agent=1))
    bench.submit(ECHO._replace(action="other"))
    pause: dict[str, Any] = {
        "agent": lambda paused: bench.pause_agent("ann", paused=paused),
        "type": lambda paused: bench.pause_type("echo", paused=paused),
        "scheduler": lambda paused: bench.pause_scheduler(paused=paused),
    }
    pause[what](True)
    urgent = bench.submit(URGENT)
    assert urgent not in bench.running
    pause[what](False)
    assert bench.running == [urgent]


# -- notes


def test_what_an_attempt_says_is_kept(bench: Bench) -> None:
    task = bench.submit(ECHO)
    _, _, tell = bench.runner.running[task]
    tell(Note("halfway", progress=0.5))
    tell(Note("careful", level="warning"))
    bench.host.run()
    notes = bench.task(task).notes
    assert notes is not None
    assert (notes.lines, notes.reports, notes.progress) == (2, 1, 0.5)


def test_what_an_attempt_says_after_it_was_cut_off_is_not_kept(bench: Bench) -> None:
    task = bench.submit(ECHO)
    _, _, tell = bench.runner.running[task]
    bench.crash()
    tell(Note("from the dead"))
    bench.host.run()
    assert bench.task(task).notes is None


@pytest.mark.parametrize("end", ["cancelled", "failed", "backing off"])
def test_what_an_attempt_says_after_its_end_is_not_kept(bench: Bench, end: str) -> None:
    """Terminal is final, and what is over is over."""
    retry = RETRY if end == "backing off" else None
    task = bench.submit(changed(ECHO, retry=retry))
    _, _, tell = bench.runner.running[task]
    if end == "cancelled":
        bench.cancel(task)
    else:
        bench.end(task, BAD)
    kinds = bench.kinds(task)
    tell(Note("too late"))
    bench.host.run()
    assert bench.kinds(task) == kinds


def test_somebody_outside_may_note_a_task_that_lives(bench: Bench) -> None:
    task = bench.submit(ECHO)

    def note(task: str) -> Any:
        return bench.ask(
            bench.shard.pool,
            lambda reply: m.NoteTask(task, ("hello",), "info", {"percent": 9}, "ann", reply),
        )

    assert note(task) == 2
    bench.end(task)
    with pytest.raises(Conflict, match="task is already succeeded"):
        note(task)
    with pytest.raises(NotFound, match="task not found"):
        note("nobody")
