"""Lists, streams and large bodies of one caller leave others their turns of the event loop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import until
from support.tokens import Guarded, bearer

from rota.sight import sight
from rota.sight.turns import Turns

if TYPE_CHECKING:
    from support.http_server import Servers

TASKS = 200
LISTS = 10


@pytest.fixture
def guarded(serve: Servers) -> Guarded:
    guarded = Guarded(serve)
    guarded.make("greedy", "submit", "*")
    guarded.make("other", "submit", "*")
    return guarded


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The callers that took turns, in order."""
    callers: list[str] = []
    take = Turns.take

    async def recorded(self: Turns, caller: str) -> None:
        await take(self, caller)
        callers.append(caller)

    monkeypatch.setattr(Turns, "take", recorded)
    return callers


def test_anothers_list_waits_for_no_more_than_one_slice_of_each_caller(
    guarded: Guarded, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [{"agentId": "a", "action": "waits"}] * TASKS
    assert guarded.rota.post("/v1/batches", {"tasks": items}).status == 202
    monkeypatch.setattr(sight, "SLICE_TASKS", 1)
    greedy, other = (f"token {guarded.principals[name]}" for name in ("greedy", "other"))
    taken.clear()
    with ThreadPoolExecutor(LISTS) as pool:
        path = "/v1/tasks?type=rare"
        lists = [pool.submit(guarded.ask, "greedy", "GET", path) for _ in range(LISTS)]
        until(lambda: taken.count(greedy) > LISTS)
        assert guarded.ask("other", "GET", path).json["count"] == 0
        until(lambda: taken.count(other) == TASKS + 1)
        assert [each.result().status for each in lists] == [200] * LISTS
    first = taken.index(other)
    last = len(taken) - taken[::-1].index(other)
    between = taken[first:last]
    assert between.count(greedy) <= between.count(other)


def test_streams_that_catch_up_take_turns(guarded: Guarded, taken: list[str]) -> None:
    guarded.rota.submit_native(action="waits")
    taken.clear()
    headers = bearer(guarded.tokens["other"])
    with guarded.rota.stream("/v1/events/stream?after=0", **headers) as stream:
        next(iter(stream))
    assert f"token {guarded.principals['other']}" in taken


@pytest.mark.parametrize(
    "params", [{"x": ["y"] * 600}, {"x": "y" * 70_000}], ids=["many values", "large"]
)
def test_large_bodies_take_turns(
    guarded: Guarded, taken: list[str], params: dict[str, Any]
) -> None:
    body = {"agentId": "a", "action": "waits", "params": params}
    small = {**body, "params": {"x": "y"}}
    assert guarded.ask("other", "POST", "/v1/tasks", small).status == 202
    assert not taken
    assert guarded.ask("other", "POST", "/v1/tasks", body).status == 202
    assert taken == [f"token {guarded.principals['other']}"]
