"""Whoever wants to go on after a seq that the log has not come to is told so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.http_server import Answer, Rota, Servers


@pytest.fixture
def rota(serve: Servers) -> Rota:
    """A server with a short history."""
    made = serve()
    made.ended(made.submit_native(action="echo"))
    return made


def head(rota: Rota) -> int:
    return int(rota.get("/v1/events/head").json["seq"])


def refused(rota: Rota, answer: Answer, after: int) -> None:
    assert (answer.status, answer.json["code"]) == (400, "seq_beyond_head")
    assert answer.json["details"] == {"after": after, "head": head(rota)}
    assert str(after) in answer.json["error"]


@pytest.mark.parametrize("beyond", [1, 1000, 1 << 50])
def test_a_seq_beyond_the_head_is_refused_wherever_it_is_given(rota: Rota, beyond: int) -> None:
    task_id = rota.submit_native(action="waits")
    after = head(rota) + beyond
    refused(rota, rota.get(f"/v1/events?after={after}"), after)
    refused(rota, rota.get(f"/v1/events?after={after}&kind=task_submitted"), after)
    refused(rota, rota.get(f"/v1/events/stream?after={after}"), after)
    refused(rota, rota.get("/v1/events/stream", **{"Last-Event-ID": str(after)}), after)
    refused(rota, rota.get(f"/v1/tasks/{task_id}/events?after={after}"), after)


def test_the_head_itself_is_where_a_reader_may_be(rota: Rota) -> None:
    at = head(rota)
    assert rota.get(f"/v1/events?after={at}").json["events"] == []
    with rota.stream(**{"Last-Event-ID": str(at)}) as stream:
        task_id = rota.submit_native(action="waits")
        (frame,) = stream.take(1)
        assert (frame.id, frame.event["task"]) == (at + 1, task_id)
