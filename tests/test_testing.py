"""What users test with: the parts of `rota.testing` that the guide does not show."""

from __future__ import annotations

from typing import Any

import pytest
from pykka import ActorRegistry

import rota.testing
from rota.client import Context, Fail, Retry, Worker
from rota.errors import InvalidRequest, QueueFull, TaskFailed
from rota.testing import (
    InMemoryRota,
    Later,
    Limits,
    ManualClock,
    Note,
    RecordingContext,
    failed,
    succeeded,
)


def test_the_public_names_are_sorted_and_there() -> None:
    names = rota.testing.__all__
    assert names == sorted(names)
    assert all(hasattr(rota.testing, name) for name in names)


def test_nothing_is_left_behind() -> None:
    with InMemoryRota({"crawl": lambda _: Later(1, succeeded())}) as made:
        made.submit("crawl", agent="ann")
        made.crash()
    assert ActorRegistry.get_all() == []


def a_worker():
    """Make a worker that sums up topics, at the third attempt."""
    worker = Worker(worker_id="ada")

    @worker.task("sum_up", agent="ann")
    def sum_up(ctx: Context, topic: str, pages: int = 1):
        ctx.log(f"attempt {ctx.attempt} at {topic}")
        ctx.progress(0.5)
        if ctx.sleep(3600) or ctx.attempt < 3:
            raise Retry("the library is closed", code="closed")
        return {"summary": f"{pages} pages about {topic}"}

    @worker.task("refuse")
    async def refuse(ctx: Context):
        raise Fail("never", code="no", details={"part": 7})

    return worker


AGAIN = {"kind": "fixed", "base_s": 60, "max_attempts": 3}


def test_the_functions_of_a_worker_do_the_work() -> None:
    with InMemoryRota(worker=a_worker()) as made:
        task = made.submit("sum_up", agent="ann", params={"topic": "rotas"}, retry=AGAIN)
        assert made.state(task) == "scheduled"
        assert made.view(task)["lastError"] == {
            "code": "closed",
            "message": "the library is closed",
        }
        made.wait(119)
        assert made.view(task)["attempt"] == 2
        made.wait(1)
        assert made.result(task) == {"summary": "1 pages about rotas"}
        assert made.logs(task) == [f"attempt {n} at rotas" for n in (1, 2, 3)]
        assert made.history(task).count("lease_ended") == 3
        assert made.view(task)["progress"] == 0.5


def test_what_a_function_refuses_is_raised_with_the_result() -> None:
    with InMemoryRota(worker=a_worker()) as made:
        with pytest.raises(TaskFailed, match="never") as caught:
            made.result(made.submit("refuse", retry=AGAIN))
        assert (caught.value.code, caught.value.details) == ("no", {"part": 7})
        bad = made.submit("sum_up", agent="ann", params={"subject": "rotas"})
        with pytest.raises(TaskFailed, match="missing a required argument: 'topic'"):
            made.result(bad)
        with pytest.raises(InvalidRequest, match="priority"):
            made.submit("sum_up", agent="ann", priority="urgent")
        with pytest.raises(InvalidRequest, match="unknown field 'agentId'; did you mean 'agent'"):
            made.submit("sum_up", agentId="ann")
        with pytest.raises(InvalidRequest, match="'timeout_s': must be at least 0.001"):
            made.submit("sum_up", timeout_s=-1)


def test_other_tasks_go_by_the_script_beside_a_worker() -> None:
    with InMemoryRota({"crawl": lambda _: succeeded(1)}, worker=a_worker()) as made:
        assert made.result(made.submit("crawl")) == 1
        first = made.submit("sum_up", agent="bob", params={"topic": "x"}, task_id="mine")
        assert (first, made.running) == ("mine", ["mine"])  # ann's alone are the worker's
        child = made.submit("refuse", depends_on=["mine"])
        assert made.state(child) == "blocked"
        made.succeed("mine")
        assert made.state(child) == "failed"


def test_one_function_is_called_with_a_context() -> None:
    ctx = RecordingContext({"topic": "rotas"}, attempt=3)
    function = a_worker().function_for("ann", "sum_up")
    assert function is not None
    assert function.call(ctx, topic="rotas") == {"summary": "1 pages about rotas"}
    assert (ctx.lines, ctx.told, ctx.slept_s) == (["attempt 3 at rotas"], [0.5], 3600)
    ctx = RecordingContext(agent="ann", task={"priority": 0})
    ctx.cancel()
    assert (ctx.sleep(1), ctx.task.priority, ctx.agent) == (True, 0, "ann")


def test_two_runs_do_the_same() -> None:
    def told() -> list[Any]:
        with InMemoryRota({"crawl": lambda a: failed("no") if a.number < 3 else None}) as made:
            made.submit("crawl", retry={"max_attempts": 5, "jitter_s": 0.5})
            made.wait(60)
            return made.events()

    assert told() == told()


def test_an_attempt_that_was_aborted_says_nothing_later() -> None:
    with InMemoryRota({"crawl": lambda _: Later(10, succeeded())}) as made:
        task = made.submit("crawl")
        made.cancel(task)
        made.wait(20)
        assert made.state(task) == "cancelled"
        assert made.runner.aborted[0][0] == task
        assert made.running == []


def test_what_is_refused_is_raised() -> None:
    with InMemoryRota(limits=Limits(queued=1, push=1)) as made:
        made.submit("crawl")
        made.submit("crawl")
        with pytest.raises(QueueFull):
            made.submit("crawl")


def test_a_handler_hears_of_what_comes_and_may_raise() -> None:
    heard: list[int] = []

    async def hear(record: Any) -> None:
        heard.append(record.seq)

    def touchy(record: Any) -> None:
        if type(record.event).__name__ == "TaskFailed":
            msg = "not that"
            raise AssertionError(msg)

    with InMemoryRota() as made:
        before = made.log.head().seq
        made.on_event(hear)
        made.on_event(touchy)
        task = made.submit("crawl")
        assert heard == list(range(before + 1, made.log.head().seq + 1))
        with pytest.raises(AssertionError, match="not that"):
            made.fail(task)


def test_an_attempt_tells_of_itself() -> None:
    with InMemoryRota() as made:
        task = made.submit("crawl")
        made.runner.running[task].tell(Note("half way", progress=0.5))
        made.run()
        assert made.view(task)["progress"] == 0.5


def test_the_clock_is_the_callers() -> None:
    clock = ManualClock(5_000_000)
    with InMemoryRota(clock=clock) as made:
        made.wait(2.5)
        assert clock.now_us() == 7_500_000


def test_what_a_workers_functions_declare_holds_in_memory() -> None:
    worker = Worker()

    @worker.task("flaky", retry={"max_attempts": 2, "base_s": 0}, timeout=5)
    def flaky(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return ctx.attempt

    with InMemoryRota(worker=worker) as made:
        task = made.submit("flaky")
        assert made.result(task) == 2
        assert made.view(task)["timeoutMs"] == 5000


def test_a_declaration_that_no_server_takes_is_refused_in_memory() -> None:
    worker = Worker()

    @worker.task("slow", timeout=10_000_000)
    def slow() -> None: ...

    with pytest.raises(InvalidRequest, match="timeout_s': must be at most"):
        InMemoryRota(worker=worker)
