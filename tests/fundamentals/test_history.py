"""Every fact is an event, in one order, and the state is nothing but their sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.http_server import Rota


def test_a_task_tells_its_own_story(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "echo")
    rota.ended(task_id)

    story = rota.get(f"/v1/tasks/{task_id}/events").json["events"]

    assert [event["kind"] for event in story] == [
        "task_submitted",
        "task_assigned",
        "task_started",
        "task_succeeded",
    ]


def test_the_whole_history_has_no_gaps(rota: Rota) -> None:
    for _ in range(3):
        rota.ended(rota.submit_native("ann", "echo"))

    history = rota.events()

    assert history[0]["kind"] == "server_started"
    assert [event["seq"] for event in history] == list(range(1, len(history) + 1))
    assert rota.get("/v1/events/head").json["seq"] == len(history)


def test_history_can_be_followed_as_it_happens(rota: Rota) -> None:
    with rota.stream() as stream:
        task_id = rota.submit_native("ann", "echo")

        assert [frame.event["task"] for frame in stream.take(4)] == [task_id] * 4


def test_stops_and_starts_are_facts_too(rota: Rota) -> None:
    rota.restart()

    rota.submit_native("ann", "paint-the-house")

    kinds = [event["kind"] for event in rota.events()]
    assert kinds == ["server_started", "server_stopped", "server_started", "task_submitted"]


def test_a_task_that_has_left_memory_is_still_in_the_log(rota: Rota) -> None:
    rota.post("/v1/config/reload", {"scheduler": {"resultTTLSec": 1}})
    task_id = rota.submit_native("ann", "echo")
    task = rota.ended(task_id)
    while rota.get("/v1/tasks").json["count"]:
        assert rota.task(task_id) == task

    assert rota.task(task_id) == task


def test_replaying_the_log_gives_the_very_state(rota: Rota) -> None:
    for action in ("echo", "fail", "paint-the-house"):
        rota.submit_native("ann", action)
    rota.post("/v1/agents/bob/pause")

    live, replayed = rota.digests()

    assert live == replayed
