"""Turns of the event loop: callers in turn, one step at a time, with rests in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from rota.actors.readers import asked_by
from rota.sight import turns
from rota.sight.turns import Turns, my_turn, turns_of

if TYPE_CHECKING:
    from collections.abc import Coroutine


def test_callers_take_turns() -> None:
    async def run() -> list[str]:
        all_turns, steps = Turns(), []

        async def take(caller: str) -> None:
            await all_turns.take(caller)
            steps.append(caller)

        await asyncio.gather(*map(take, ["many", "many", "many", "many", "few", "one", "few"]))
        return steps

    assert asyncio.run(run()) == ["many", "few", "one", "many", "few", "many", "many"]


def test_a_request_with_many_steps_goes_behind_its_callers_others() -> None:
    async def run() -> list[str]:
        turns_of.set(Turns())
        steps: list[str] = []

        async def scan(caller: str, name: str, count: int) -> None:
            asked_by.set(caller)
            for _ in range(count):
                await my_turn()
                steps.append(name)

        scans: list[Coroutine[None, None, None]] = [scan("a", "a1", 3), scan("a", "a2", 3)]
        await asyncio.gather(*scans, scan("b", "b", 2))
        return steps

    assert asyncio.run(run()) == ["a1", "b", "a2", "b", "a1", "a2", "a1", "a2"]


def test_the_loop_rests_as_long_as_a_step_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(turns, "monotonic_s", lambda: clock[0])

    async def run() -> list[float]:
        loop, rests = asyncio.get_running_loop(), []
        call_later = loop.call_later

        def resting(delay: float, *args: object) -> asyncio.TimerHandle:
            rests.append(delay)
            return call_later(0, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "call_later", resting)
        all_turns = Turns()

        async def step(took: float) -> None:
            await all_turns.take("a")
            clock[0] += took

        async def other() -> None:
            for _ in range(10):
                await asyncio.sleep(0)
                clock[0] += 100  # between the steps, and no part of them

        await asyncio.gather(step(1), step(2), other())
        await asyncio.sleep(0)
        return rests

    assert asyncio.run(run()) == [1, 2]


def test_a_request_that_ends_while_it_waits_keeps_nobody_waiting() -> None:
    async def run() -> None:
        all_turns = Turns()
        first, second, third = (asyncio.ensure_future(all_turns.take("a")) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        await asyncio.wait_for(third, 10)
        with pytest.raises(asyncio.CancelledError):
            await second
        await asyncio.wait_for(all_turns.take("b"), 10)

    asyncio.run(run())


def test_without_a_request_others_run_in_between() -> None:
    async def run() -> bool:
        has_run: list[bool] = []
        asyncio.get_running_loop().call_soon(has_run.append, True)
        await my_turn()
        return bool(has_run)

    assert asyncio.run(run())
