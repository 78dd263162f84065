"""GET /v1/tasks/{id}?at=: a task as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

if TYPE_CHECKING:
    from support.http_server import Rota, Servers


@pytest.fixture
def rota(serve: Servers) -> Rota:
    return serve({"scheduler": {"resultTTLSec": 3600}})


def history(rota: Rota, task: str) -> list[dict[str, Any]]:
    return rota.get(f"/v1/tasks/{task}/events").json["events"]


def test_a_task_is_shown_as_it_was_after_each_of_its_records(rota: Rota) -> None:
    task = rota.submit_native(params={"text": "x"})
    rota.ended(task)
    end = rota.get(f"/v1/tasks/{task}").json
    events = history(rota, task)
    states = [rota.get(f"/v1/tasks/{task}?at={event['seq']}").json["state"] for event in events]
    assert states == ["ready", "assigned", "running", "succeeded"]
    assert rota.get(f"/v1/tasks/{task}?at={events[-1]['seq']}").json == end
    first = rota.get(f"/v1/tasks/{task}?at={events[0]['seq']}").json
    assert "result" not in first
    assert "startedAt" not in first
    assert (
        rota.get(f"/v1/tasks/{task}?at={events[0]['seq']}&view=pinchtab").json["state"] == "queued"
    )


def test_a_moment_is_as_good_as_a_seq(rota: Rota) -> None:
    task = rota.submit_native()
    end = rota.ended(task)
    moments = [event["at"] for event in history(rota, task)]
    shown = rota.get(f"/v1/tasks/{task}?at={quote(end['completedAt'])}")
    assert shown.json["state"] in ("running", "succeeded"), (shown.json, moments)
    assert rota.get(f"/v1/tasks/{task}?at=2020-01-01T00:00:00Z").status == 404
    assert rota.get(f"/v1/tasks/{task}?at=2020-01-01T00:00:00+00:00").status == 404


def test_before_it_was_there_it_is_not_found_and_the_answer_says_so(rota: Rota) -> None:
    task = rota.submit_native()
    first = history(rota, task)[0]["seq"]
    answer = rota.get(f"/v1/tasks/{task}?at={first - 1}")
    assert (answer.status, answer.code) == (404, "not_found")
    assert "none yet" in answer.body.decode()
    answer = rota.get("/v1/tasks/tsk_none?at=1")
    assert (answer.status, answer.code) == (404, "not_found")
    assert "none yet" not in answer.body.decode()


@pytest.mark.parametrize(
    ("at", "code"),
    [
        ("999999", "seq_beyond_head"),
        ("9" * 30, "seq_beyond_head"),
        ("2999-01-01T00:00:00Z", "seq_beyond_head"),
        ("9" * 5000, "seq_beyond_head"),
        ("yesterday", "bad_request"),
        ("", "bad_request"),
        ("-1", "bad_request"),
        ("2026-01-01", "bad_request"),
        ("1&waitMs=10", "bad_request"),
    ],
)
def test_what_has_not_come_or_is_no_moment_is_refused(rota: Rota, at: str, code: str) -> None:
    answer = rota.get(f"/v1/tasks/{rota.submit_native()}?at={at}")
    assert (answer.status, answer.code) == (400, code)


def test_a_seq_may_be_written_with_zeros_before_it(rota: Rota) -> None:
    task = rota.submit_native()
    seq = history(rota, task)[0]["seq"]
    shown = rota.get(f"/v1/tasks/{task}?at={'0' * 30}{seq}")
    assert (shown.status, shown.json["state"]) == (200, "ready")
    assert rota.get(f"/v1/tasks/{task}?at=0").status == 404


def test_what_a_task_still_waited_for_is_told_of_its_parents(rota: Rota) -> None:
    assert rota.post("/v1/agents/ann/pause", {}).status == 200
    one, two = rota.submit_native(agent="bob"), rota.submit_native()
    task = rota.submit_native(agent="bob", dependsOn=[one, two])
    submitted = history(rota, task)[0]["seq"]
    rota.ended(one)
    head = rota.get("/v1/events/head").json["seq"]
    assert rota.get(f"/v1/tasks/{task}?at={head}").json["waitingFor"] == [two]
    assert rota.get(f"/v1/tasks/{task}?at={submitted}").json["state"] == "blocked"
    assert rota.post("/v1/agents/ann/resume").status == 200
    rota.ended(task)
    assert rota.get(f"/v1/tasks/{task}?at={head}").json["waitingFor"] == [two]
