"""The builtin actions: `echo`, `sleep` and `fail`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from rota.domain.commands import Outcome
from rota.executors.builtin import SLEEP_MS_MAX, BuiltinExecutor
from rota.executors.port import Attempt
from rota.executors.runner import AsyncRunner
from rota.executors.tab import NO_TAB

if TYPE_CHECKING:
    from rota.executors.port import Tell


def attempt(action: str, params: dict[str, Any], executor: str = "builtin") -> Attempt:
    return Attempt("tsk_1", "ann", 1, 7, executor, action, params)


def run(action: str, params: dict[str, Any]) -> Outcome:
    """Run one attempt through the runner, as the worker pool does."""

    async def go() -> Outcome:
        runner = AsyncRunner({})
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        runner.start(attempt(action, params), ended.set_result, [].append)
        try:
            return await asyncio.wait_for(ended, 5)
        finally:
            await runner.close()

    return asyncio.run(go())


@pytest.mark.parametrize("params", [{}, {"a": [1, {"b": None}]}, {"text": "é\x00"}])
def test_echo_gives_its_params_back(params: dict[str, Any]) -> None:
    assert run("echo", params) == Outcome(ok=True, result={"echo": params})


def test_fail_fails_with_its_message() -> None:
    assert run("fail", {"message": "no"}) == Outcome(ok=False, code="asked_to_fail", error="no")
    assert run("fail", {}).error == "failed as asked"
    assert len(run("fail", {"message": "x" * 9999}).error) <= 2000
    assert run("fail", {"message": {"a": 1}}).error


@pytest.mark.parametrize("ms", [0, 1, 2.5])
def test_sleep_sleeps_and_says_so(ms: float) -> None:
    assert run("sleep", {"ms": ms}) == Outcome(ok=True, result={"sleptMs": ms})


@pytest.mark.parametrize("ms", [-1, SLEEP_MS_MAX + 1, "5", None, True, [], 1e300])
def test_sleep_refuses_what_is_not_a_reasonable_time(ms: Any) -> None:
    assert run("sleep", {"ms": ms}).code == "bad_params"


def test_sleep_can_be_aborted() -> None:
    async def go() -> list[Outcome]:
        runner = AsyncRunner({})
        ended: list[Outcome] = []
        abort = runner.start(attempt("sleep", {"ms": SLEEP_MS_MAX}), ended.append, [].append)
        await asyncio.sleep(0)
        abort("cancelled")
        await runner.close()
        return ended

    assert asyncio.run(go()) == []


def test_an_unknown_action_fails_by_name() -> None:
    outcome = BuiltinExecutor().run_now(attempt("dance", {})._replace(tab="t"))
    assert outcome is not None
    assert (outcome.ok, outcome.code) == (False, "unknown_action")
    assert "dance" in outcome.error


def test_what_needs_a_tab_and_names_none_is_refused_in_the_documents_words() -> None:
    assert run("dance", {}) == Outcome(ok=False, code="tab_required", error=NO_TAB)


def test_an_unknown_executor_and_one_that_raises_fail_only_their_attempt() -> None:
    class Broken:
        async def run(self, attempt: Attempt, tell: Tell) -> Outcome:
            raise RuntimeError("secret inside")

        async def cut_off(self, attempt: Attempt) -> bool:
            return True

        async def close(self) -> None:
            """Nothing to close."""

    async def go(executor: str) -> Outcome:
        runner = AsyncRunner({"broken": Broken()})
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        runner.start(attempt("x", {}, executor), ended.set_result, [].append)
        try:
            return await asyncio.wait_for(ended, 5)
        finally:
            await runner.close()

    assert asyncio.run(go("nobody")).code == "no_executor"
    outcome = asyncio.run(go("broken"))
    assert outcome.code == "executor_fault"
    assert "secret" not in outcome.error


def test_builtin_actions_that_need_no_waiting_end_at_once() -> None:
    executor = BuiltinExecutor()
    assert executor.run_now(attempt("echo", {})) is not None
    assert executor.run_now(attempt("fail", {})) is not None
    assert executor.run_now(attempt("sleep", {"ms": 1})) is None
