"""What users test with: the parts of `rota.testing` that the guide does not show."""

from __future__ import annotations

from typing import Any

import pytest
from pykka import ActorRegistry

import rota.testing
from rota.errors import QueueFull
from rota.testing import InMemoryRota, Later, Limits, ManualClock, Note, failed, succeeded


def test_the_public_names_are_sorted_and_there() -> None:
    names = rota.testing.__all__
    assert names == sorted(names)
    assert all(hasattr(rota.testing, name) for name in names)


def test_nothing_is_left_behind() -> None:
    with InMemoryRota({"crawl": lambda _: Later(1, succeeded())}) as made:
        made.submit("crawl", agent="ann")
        made.crash()
    assert ActorRegistry.get_all() == []


def test_two_runs_do_the_same() -> None:
    def told() -> list[Any]:
        with InMemoryRota({"crawl": lambda a: failed("no") if a.number < 3 else None}) as made:
            made.submit("crawl", retry={"max_attempts": 5, "jitter_ms": 500})
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
