"""A task's history is read a page at a time, however long it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.http_server import Rota


def test_a_history_comes_in_pages(rota: Rota) -> None:
    task = rota.submit_native(action="waits")
    for n in range(5):
        assert rota.post(f"/v1/tasks/{task}/progress", {"progress": n}).status == 201
    path = f"/v1/tasks/{task}/events"
    whole = rota.get(path).json
    assert [event["kind"] for event in whole["events"]] == ["task_submitted"] + [
        "task_progressed"
    ] * 5
    assert "next" not in whole
    found, after = [], 0
    while True:
        page = rota.get(f"{path}?limit=2&after={after}").json
        found += page["events"]
        if "next" not in page:
            break
        after = page["next"]
    assert found == whole["events"]


def test_a_page_at_the_end_is_empty_and_an_unknown_task_is_404(rota: Rota) -> None:
    task = rota.submit_native(action="echo")
    rota.ended(task)
    head = rota.get("/v1/events/head").json["seq"]
    assert rota.get(f"/v1/tasks/{task}/events?after={head}").json == {"events": []}
    assert rota.get("/v1/tasks/tsk_nobody/events").status == 404
    for bad in ("after=-1", "after=x", "limit=0", "limit=1001"):
        assert rota.get(f"/v1/tasks/{task}/events?{bad}").status == 400


def test_whole_numbers_stay_whole_in_a_report(rota: Rota) -> None:
    task = rota.submit_native(action="waits")
    for report in (40, 40.5, "half", {"percent": 40}):
        rota.post(f"/v1/tasks/{task}/progress", {"progress": report})
        assert repr(rota.get(f"/v1/tasks/{task}").json["progress"]) == repr(report)


@pytest.mark.parametrize("report", ["x" * 4095, {"x": "y" * 4090}])
def test_a_report_is_bounded_in_size(rota: Rota, report: object) -> None:
    task = rota.submit_native(action="waits")
    answer = rota.post(f"/v1/tasks/{task}/progress", {"progress": report})
    assert (answer.status, answer.json["details"]) == (400, {"field": "progress"})
    assert rota.post(f"/v1/tasks/{task}/progress", {"progress": "x" * 4094}).status == 201


def test_a_task_keeps_so_many_reports_and_says_so(rota: Rota) -> None:
    task = rota.submit_native(action="waits")
    lines = {"lines": ["a line"] * 1000}
    assert rota.post(f"/v1/tasks/{task}/logs", lines).status == 201
    answer = rota.post(f"/v1/tasks/{task}/logs", {"lines": ["one more"]})
    assert (answer.status, answer.code) == (409, "log_full")
