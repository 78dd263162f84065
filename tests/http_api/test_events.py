"""/v1/events: the whole history, as pages and as a stream, without gaps or repeats."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from support.http_server import Frame, Rota, Servers, until

from rota.eventlog.chain import GENESIS, extend
from rota.http.answers import EventPage


@pytest.fixture
def rota(serve: Servers) -> Rota:
    """A server with a little history."""
    made = serve()
    for n in range(5):
        made.ended(made.submit_native(f"agent-{n % 2}"))
    return made


def read(rota: Rota, limit: int, query: str = "") -> list[dict[str, Any]]:
    """The history, page by page."""
    found: list[dict[str, Any]] = []
    after = 0
    for _ in range(200):
        page = rota.get(f"/v1/events?after={after}&limit={limit}{query}").json
        assert EventPage.model_validate(page, strict=True)
        found += page["events"]
        if not page["events"]:
            assert page["next"] == page["head"]
            return found
        assert page["next"] >= page["events"][-1]["seq"]
        after = page["next"]
    pytest.fail("the pages do not end")


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_pages_of_history_neither_repeat_nor_skip(rota: Rota, limit: int) -> None:
    events = read(rota, limit)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert len(events) == 1 + 5 * 4
    assert all(a["at"] <= b["at"] for a, b in itertools.pairwise(events))


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_filters_select_by_kind_task_and_agent(rota: Rota, limit: int) -> None:
    everything = read(rota, 1000)
    task = everything[1]["task"]
    for query, wanted in (
        ("&kind=task_submitted", lambda e: e["kind"] == "task_submitted"),
        (
            "&kind=task_started,server_started",
            lambda e: e["kind"] in ("task_started", "server_started"),
        ),
        (f"&task={task}", lambda e: e.get("task") == task),
        ("&agentId=agent-1", lambda e: e.get("agent") == "agent-1"),
        (
            "&agentId=agent-1&kind=task_succeeded",
            lambda e: e.get("agent") == "agent-1" and e["kind"] == "task_succeeded",
        ),
        ("&agentId=nobody", lambda _: False),
    ):
        assert read(rota, limit, query) == [event for event in everything if wanted(event)]


def test_an_unknown_kind_is_an_error(rota: Rota) -> None:
    answer = rota.get("/v1/events?kind=task_vanished")
    assert answer.status == 400
    assert "task_vanished" in answer.json["error"]


def test_at_the_end_there_is_nothing(rota: Rota) -> None:
    head = rota.get("/v1/events/head").json["seq"]
    page = rota.get(f"/v1/events?after={head}").json
    assert (page["events"], page["next"], page["head"]) == ([], head, head)


def test_a_place_beyond_the_end_is_an_error(rota: Rota) -> None:
    head = rota.get("/v1/events/head").json["seq"]
    for answer in (
        rota.get(f"/v1/events?after={head + 1}"),
        rota.get(f"/v1/events?after={head + 1}&agentId=nobody"),
        rota.get(f"/v1/events/stream?after={head + 1}"),
        rota.get("/v1/events/stream", **{"Last-Event-ID": str(head + 1)}),
    ):
        assert (answer.status, answer.code) == (400, "seq_beyond_head")
        assert str(head) in answer.json["error"]
        assert answer.json["details"]["head"] == head


def test_the_head_is_the_end_of_the_chain_over_the_history(rota: Rota) -> None:
    head = rota.get("/v1/events/head").json

    def chain(server: Any) -> str:
        digest = GENESIS
        for item in server.shard.log.read(0, 1000):
            digest = extend(digest, item.body)
        return digest.hex()

    assert head == {"seq": len(read(rota, 1000)), "digest": rota.inside(chain)}


def test_what_was_acknowledged_is_in_the_feed_at_once(rota: Rota) -> None:
    for _ in range(10):
        task_id = rota.submit_native(action="waits")
        assert rota.kinds(task_id) == ["task_submitted"]


# -- the stream ----------------------------------------------------------------------------------


def test_the_stream_tells_new_facts_as_they_become_durable(rota: Rota) -> None:
    with rota.stream() as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["x-request-id"]
        task_id = rota.submit_native()
        frames = stream.take(4)
    assert [frame.event["task"] for frame in frames] == [task_id] * 4
    assert all(frame.id == frame.event["seq"] for frame in frames)
    assert [frame.event for frame in frames] == rota.events(task=task_id)


def test_the_stream_can_begin_anywhere(rota: Rota) -> None:
    everything = read(rota, 1000)
    with rota.stream("/v1/events/stream?after=0") as stream:
        assert [frame.event for frame in stream.take(len(everything))] == everything
    with rota.stream("/v1/events/stream?after=10") as stream:
        assert [frame.event for frame in stream.take(5)] == everything[10:15]


def test_last_event_id_resumes_without_gap_or_repeat(rota: Rota) -> None:
    """Readers that lose their connection again and again, while tasks go on, miss nothing."""
    working = threading.Event()

    def work() -> None:
        for _ in range(60):
            rota.submit_native("busy")
        working.set()

    thread = threading.Thread(target=work)
    thread.start()
    frames: list[Frame] = []
    while len(frames) < 21 + 60 * 4:
        last = str(frames[-1].id) if frames else "0"
        with rota.stream(**{"Last-Event-ID": last}) as stream:
            frames += stream.take(min(17, 21 + 60 * 4 - len(frames)))
    thread.join()
    assert working.is_set()
    assert [frame.id for frame in frames] == list(range(1, len(frames) + 1))
    assert [frame.event for frame in frames] == read(rota, 1000)


def test_last_event_id_counts_more_than_the_query(rota: Rota) -> None:
    with rota.stream("/v1/events/stream?after=0", **{"Last-Event-ID": "3"}) as stream:
        assert stream.take(1)[0].id == 4


def test_the_stream_is_filtered_like_the_feed(rota: Rota) -> None:
    query = "kind=task_succeeded&agentId=agent-1"
    expected = read(rota, 1000, f"&{query}")
    with rota.stream(f"/v1/events/stream?after=0&{query}") as stream:
        assert [frame.event for frame in stream.take(len(expected))] == expected


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 19, "１"])
def test_a_bad_last_event_id_is_an_error(rota: Rota, last: str) -> None:
    headers = {"Last-Event-ID": last.encode().decode("latin-1")}
    assert rota.request("GET", "/v1/events/stream", headers=headers).status == 400


def test_a_reader_that_leaves_is_forgotten(rota: Rota) -> None:
    def streams() -> int:
        return rota.inside(lambda server: server.app.namespaces.streaming.held)

    with rota.stream(), rota.stream():
        until(lambda: streams() == 2)
    rota.submit_native()
    until(lambda: streams() == 0, what="the streams are closed")


def test_streams_end_when_the_server_stops(rota: Rota) -> None:
    with rota.stream() as stream:
        rota.restart()
        assert all(frame.event["kind"] == "server_stopped" for frame in stream)


def test_more_streams_than_a_caller_may_have_are_refused_and_others_find_room(rota: Rota) -> None:
    bound = rota.inside(lambda server: server.app.namespaces.streaming)
    bound.most = 4
    with rota.stream("/v1/events/stream?agentId=ann"), rota.stream("/v1/events/stream?agentId=ann"):
        answer = rota.get("/v1/events/stream?agentId=ann")
        assert (answer.status, answer.code) == (503, "too_many_streams")
        with rota.stream("/v1/events/stream?agentId=bob"):
            assert bound.held == 3
    until(lambda: not bound.held, what="all have left")
