"""What a submission depends on can be looked up before it is decided, and comes to the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from actors.bench import BAD, GOOD, Bench

from rota.actors import messages as m
from rota.domain.commands import Limits, SubmitTask
from rota.errors import InvalidRequest
from rota.http.foresight import FEW, foresee

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.actors.archive import Foreseen

LIMITS = Limits(queued=10_000, queued_per_agent=10_000, result_ttl_s=5)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(LIMITS)
    yield made
    made.check_replay()
    made.close()


def command(*depends: str, **fields: str) -> SubmitTask:
    return SubmitTask("ann", "click", "web", depends=depends, **fields)  # type: ignore[arg-type]


def gone(bench: Bench, task_id: str, outcome: object = GOOD) -> str:
    """Have a task that has ended and left memory."""
    bench.submit(SubmitTask("ann", "click", "web", wanted_id=task_id))
    bench.end(task_id, outcome)  # type: ignore[arg-type]
    bench.wait(10)
    bench.submit(SubmitTask("ann", "click", "web"))  # news: what is old is forgotten
    bench.host.run()
    assert task_id not in bench.shard.state.tasks.by_id
    return task_id


def decided(bench: Bench, asked: SubmitTask, foreseen: Foreseen | None) -> str:
    """Submit, with what was foreseen; give the state that it comes to."""
    (answer,) = bench.ask(
        bench.shard.admission, lambda reply: m.SubmitTasks((asked,), reply, foreseen)
    )
    if isinstance(answer, InvalidRequest):
        return answer.code
    return bench.state(answer.task)


def many(*more: str) -> tuple[str, ...]:
    return (*more, *(f"nobody-{n}" for n in range(FEW + 1)))


def test_what_is_foreseen_is_decided_as_what_is_looked_up_then(bench: Bench) -> None:
    good, bad = gone(bench, "good"), gone(bench, "bad", BAD)
    for depends, state in ((many(good), "blocked"), (many(good, bad), "cancelled")):
        for foreseen in (
            None,
            asyncio.run(foresee(bench.shard.archive, (command(*depends),))),
        ):
            assert decided(bench, command(*depends), foreseen) == state


def test_a_missing_one_is_missing_though_it_was_foreseen(bench: Bench) -> None:
    asked = command(*many(), on_missing="fail")
    foreseen = asyncio.run(foresee(bench.shard.archive, (asked,)))
    assert foreseen is not None
    assert decided(bench, asked, foreseen) == "missing_dependency"


def test_who_has_come_since_is_found_in_memory(bench: Bench) -> None:
    asked = command(*many("late"))
    foreseen = asyncio.run(foresee(bench.shard.archive, (asked,)))
    bench.submit(SubmitTask("ann", "click", "web", wanted_id="late"))
    bench.end("late", BAD)
    assert decided(bench, asked, foreseen) == "cancelled"


def test_who_has_come_and_gone_since_is_found_in_the_log(bench: Bench) -> None:
    asked = command(*many("late"))
    foreseen = asyncio.run(foresee(bench.shard.archive, (asked,)))
    gone(bench, "late", BAD)
    assert decided(bench, asked, foreseen) == "cancelled"


def test_little_is_not_looked_up_beforehand(bench: Bench) -> None:
    asked = command(*(f"nobody-{n}" for n in range(FEW)))
    assert asyncio.run(foresee(bench.shard.archive, (asked,))) is None
