"""What a task has come to: its result, or an error that says what became of it."""

from __future__ import annotations

import asyncio

import pytest

from rota.client import RotaClient
from rota.errors import NoResult, NotFound, TaskCancelled, TaskFailed, WaitTimeout


def test_the_result_of_a_task_is_given_once_it_is_there(rota):
    task = rota.submit("echo", agent="results", params={"n": 1})
    assert rota.result(task.task_id) == {"echo": {"n": 1}}
    assert rota.wait(task.task_id).value() == {"echo": {"n": 1}}


def test_a_task_that_failed_is_an_error_with_its_code_and_message(rota):
    task = rota.submit("fail", agent="results", params={"message": "no such part"})
    with pytest.raises(TaskFailed, match=f"{task.task_id} has failed: no such part") as caught:
        rota.result(task.task_id)
    assert caught.value.code == caught.value.task.error.code
    assert (caught.value.task.state, caught.value.task.has_ended) == ("failed", True)


def test_a_task_that_was_cancelled_is_another_error(rota):
    task = rota.submit("nobody-does", agent="results")
    rota.cancel(task.task_id)
    with pytest.raises(TaskCancelled, match="was cancelled"):
        rota.result(task.task_id)
    with pytest.raises(NotFound):
        rota.result("tsk_nothing")


def test_a_wait_says_when_its_time_is_over_and_shows_what_is(server):
    async def story():
        async with RotaClient(server.url) as rota:
            task = await rota.submit("nobody-does", agent="results")
            for wait in (rota.wait, rota.result):
                with pytest.raises(TimeoutError, match=r"is ready, and has not ended after 0\.1 s"):
                    await wait(task.task_id, timeout_s=0.1)
            with pytest.raises(WaitTimeout) as caught:
                await rota.wait(task.task_id, timeout_s=0)
            assert (caught.value.last.task_id, caught.value.last.state) == (task.task_id, "ready")
            with pytest.raises(NoResult, match="is ready"):
                caught.value.last.value()

    asyncio.run(story())
