"""What a decision depends on that has left memory is read before, beside the loop; and whatever
happens meanwhile, it is decided by what is true then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from actors.bench import BAD, GOOD, SlowBench

from rota.actors import archive
from rota.actors import messages as m
from rota.actors.runtime import retire_for_good
from rota.domain.attempts import INTERRUPTIONS_MAX
from rota.domain.commands import Limits, Outcome
from rota.domain.intake import BatchRequest, Request
from rota.domain.plan import Plan
from rota.errors import Conflict, LogUnusable, RotaError, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.testing.in_memory import Reply

LIMITS = Limits(queued=10_000, queued_per_agent=10_000, result_ttl_s=5)
MANY = tuple(f"nobody-{n}" for n in range(300))


@pytest.fixture
def bench() -> Iterator[SlowBench]:
    made = SlowBench(LIMITS)
    yield made
    made.check_replay()
    made.close()


def command(*depends: str, **fields: Any) -> Request:
    return Request("ann", "click", "web", depends=depends, **fields)


def gone(bench: SlowBench, task_id: str, outcome: object = GOOD, **fields: Any) -> str:
    """Have a task that has ended and left memory."""
    bench.submit(command(wanted_id=task_id, **fields))
    bench.end(task_id, outcome)  # type: ignore[arg-type]
    forget(bench, task_id)
    return task_id


def forget(bench: SlowBench, task_id: str) -> None:
    bench.wait(10)
    bench.submit(command())  # news: what is old is forgotten
    bench.host.run()
    assert task_id not in bench.shard.state.tasks.by_id


def state_of(bench: SlowBench, reply: Reply) -> str:
    [[answer]] = reply.answers
    return answer.code if isinstance(answer, RotaError) else bench.state(answer.task)


def test_parents_that_have_left_memory_decide_as_those_in_memory_do(bench: SlowBench) -> None:
    gone(bench, "good")
    gone(bench, "bad", BAD)
    for depends, state in ((("good",), "ready"), (("good", "bad"), "cancelled"), (MANY, "blocked")):
        reply = bench.offered(command(*depends))
        assert reply.answers == [], "nothing is decided before they are read"
        bench.let_read()
        assert state_of(bench, reply) in (state, "running")


def test_a_missing_one_is_missing(bench: SlowBench) -> None:
    reply = bench.offered(command("nobody", on_missing="fail"))
    bench.let_read()
    assert state_of(bench, reply) == "missing_dependency"


def test_what_is_in_memory_is_not_read(bench: SlowBench) -> None:
    parent = bench.submit(command())
    before = bench.fetched
    assert len(bench.offered(command(parent), command()).answers) == 1
    assert bench.fetched == before


def test_others_are_decided_while_the_log_is_read(bench: SlowBench) -> None:
    gone(bench, "good")
    waiting = bench.offered(command("good"))
    [[other]] = bench.offered(command()).answers
    assert bench.state(other.task) in ("ready", "running")
    assert waiting.answers == []
    bench.let_read()
    assert state_of(bench, waiting) in ("ready", "running")


def test_who_has_come_since_is_found_in_memory(bench: SlowBench) -> None:
    waiting = bench.offered(command("late"))
    held, bench.reads = bench.reads, []
    bench.submit(command(wanted_id="late"))
    bench.end("late", BAD)
    bench.reads += held
    bench.let_read()
    assert state_of(bench, waiting) == "cancelled"


def test_who_has_come_and_gone_since_is_looked_up_again(bench: SlowBench) -> None:
    """The read is over, and what it found is not yet told when the task comes and goes."""
    waiting = bench.offered(command("late"))
    [read], bench.reads = bench.reads, []
    read()
    bench.host.soon.popleft()()  # it has read that there is none
    told = bench.host.soon.popleft()
    gone(bench, "late", BAD)
    told()
    bench.host.run()
    assert waiting.answers == []
    bench.let_read()
    assert state_of(bench, waiting) == "cancelled"


def test_one_that_was_read_as_failed_may_have_lived_again(bench: SlowBench) -> None:
    gone(bench, "again", BAD)
    waiting = bench.offered(command("again"))
    [read], bench.reads = bench.reads, []
    read()
    bench.host.soon.popleft()()
    told = bench.host.soon.popleft()
    bench.revive("again")
    bench.end("again")
    forget(bench, "again")
    told()
    bench.let_read()
    assert state_of(bench, waiting) in ("ready", "running")


def test_a_step_of_the_clock_makes_it_look_again(bench: SlowBench) -> None:
    gone(bench, "good")
    waiting = bench.offered(command("good"))
    [read], bench.reads = bench.reads, []
    read()
    bench.host.soon.popleft()()
    told = bench.host.soon.popleft()
    bench.clock.step_us(3600 * 1_000_000)
    bench.shard.timekeeper.look()
    bench.host.run()
    told()
    bench.host.run()
    assert waiting.answers == []
    bench.let_read()
    assert state_of(bench, waiting) in ("ready", "running")


def test_it_is_not_looked_for_ever(bench: SlowBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive.Archive, "_lacks", lambda *_: True)
    reply = bench.offered(command("nobody"))
    bench.let_read()
    [error] = reply.answers
    assert isinstance(error, StorageUnavailable)
    assert bench.fetched == archive.ROUNDS_MAX


def test_a_log_that_cannot_be_read_is_the_answer(
    bench: SlowBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise LogUnusable("the disk does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(bench.log, "known_of", broken)
        reply = bench.offered(command("nobody"))
        bench.let_read()
    [error] = reply.answers
    assert isinstance(error, StorageUnavailable)
    assert len(bench.offered(command()).answers) == 1


def test_an_id_that_was_ever_used_is_taken(bench: SlowBench) -> None:
    gone(bench, "mine")
    with pytest.raises(Conflict, match="already"):
        bench.submit(command(wanted_id="mine"))


def test_a_key_stands_for_a_task_that_has_left_memory(bench: SlowBench) -> None:
    gone(bench, "mine", plan=Plan(idempotency="k", digest="d"))
    [again] = bench.offer(command(plan=Plan(idempotency="k", digest="d")))
    assert (again.task, again.state, again.known) == ("mine", "succeeded", "idempotent")


def test_a_key_stands_for_a_batch_that_has_left_memory(bench: SlowBench) -> None:
    tasks = tuple(command(wanted_id=f"item-{n}") for n in range(3))
    batch = BatchRequest(tasks, "native", idempotency="k", digest="d")

    def submit() -> m.BatchAdmitted:
        answer: m.BatchAdmitted = bench.ask(
            bench.shard.admission, lambda reply: m.SubmitTogether(batch, reply)
        )
        return answer

    first = submit()
    for task in tasks:
        bench.end(str(task.wanted_id))
    for task in tasks:
        forget(bench, str(task.wanted_id))
    assert bench.shard.archive.here(first.batch) is None
    again = submit()
    assert again.known == "idempotent"
    assert [(each.task, each.state) for each in again.tasks] == [
        (task.wanted_id, "succeeded") for task in tasks
    ]
    with pytest.raises(Conflict, match="already finished"):
        bench.ask(bench.shard.admission, lambda reply: m.CancelBatch(first.batch, "", "", reply))


def test_a_queue_that_was_retired_meanwhile_revives_all_the_same(bench: SlowBench) -> None:
    gone(bench, "again", BAD)
    queue = bench.shard.queue("ann")
    reply = bench.asked(queue, lambda reply: m.ReviveTask("again", "", reply))
    retire_for_good([bench.shard.cast.queues.pop("ann")])
    bench.let_read()
    assert reply.answers == [m.Revived("again")]
    assert bench.state("again") == "running"


def heir(bench: SlowBench, **fields: Any) -> str:
    """Have a task that was given a slot, and asks for a result that has left memory."""
    bench.submit(command(wanted_id="parent"))
    bench.end("parent", Outcome(ok=True, result={"n": 7}))
    bench.pause_agent("bob")
    wish = Request(
        "bob", "click", "web", params={"n": "{{parent.n}}"}, depends=("parent",), **fields
    )
    child = bench.submit(wish)
    forget(bench, "parent")
    bench.asked(bench.shard.queue("bob"), lambda reply: m.ResumeAgent("", reply))
    assert bench.state(child) == "assigned", "it waits for what it asks for"
    return child


def crowd(bench: SlowBench) -> None:
    """Let the reads that wait fail: there are too many of them."""
    bench.host.run()
    reads, bench.reads = bench.reads, []
    assert reads
    for failed in bench.failing[-len(reads) :]:
        failed(StorageUnavailable("too many wait to read the log"))
    bench.host.run()


def test_results_of_parents_that_have_left_memory_are_read_before_the_attempt_starts(
    bench: SlowBench,
) -> None:
    child = heir(bench)
    bench.let_read()
    assert bench.state(child) == "running"
    [params] = [each.params for each in bench.runner.started if each.task == child]
    assert params == {"n": 7}


@pytest.mark.parametrize("fields", [{}, {"on_interrupt": "fail"}])
def test_a_task_whose_parents_cannot_be_read_goes_back_unharmed(
    bench: SlowBench, fields: dict[str, Any]
) -> None:
    child = heir(bench, **fields)
    for _ in range(INTERRUPTIONS_MAX + 1):
        before = len(bench.records())
        crowd(bench)
        assert len(bench.records()) == before, "it pauses: it would be given out again at once"
        bench.wait(1)
        assert bench.kinds(child)[-2:] == ["AttemptInterrupted", "TaskAssigned"]
    bench.let_read()
    assert bench.state(child) == "running"
    assert bench.shard.state.tasks.by_id[child].attempt == 1
    assert bench.kinds(child).count("TaskStarted") == 1


def test_a_timeout_meanwhile_spends_no_attempt(bench: SlowBench) -> None:
    child = heir(bench, timeout_ms=100)
    crowd(bench)
    bench.wait(0.1)
    assert bench.kinds(child)[-2:] == ["AttemptInterrupted", "TaskAssigned"]
    bench.let_read()
    assert bench.state(child) == "running"
    bench.wait(1)  # and the end of the pause means nothing any more
    assert bench.kinds(child)[-2:] == ["TaskStarted", "TaskFailed"], "now it has run too long"


def test_a_task_that_ends_meanwhile_stays_ended(bench: SlowBench) -> None:
    child = heir(bench)
    crowd(bench)
    bench.asked(bench.shard.queue("bob"), lambda reply: m.CancelTask(child, "", "", reply))
    bench.wait(1)
    assert bench.kinds(child)[-1] == "TaskCancelled"
