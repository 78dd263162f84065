"""Query parameters that a route does not know are refused, with a guess at what was meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rota.http.route import CLOSED_DIALECTS, NAMESPACE_QUERY
from rota.http.routes import ROUTES

if TYPE_CHECKING:
    from support.http_server import Rota

CLOSED = [route for route in ROUTES if route.dialect in CLOSED_DIALECTS and not route.public]


@pytest.mark.parametrize(
    ("path", "name", "meant"),
    [
        ("/v1/tasks?agentid=nobody", "agentid", "agentId"),
        ("/v1/tasks?agent_id=nobody", "agent_id", "agentId"),
        ("/v1/tasks?status=failed", "status", "state"),
        ("/v1/events?agent=ann", "agent", "agentId"),
        ("/v1/schedules?agentId=ann", "agentId", "agent"),
        ("/v1/workers?limt=1", "limt", "limit"),
        ("/automechanica/tasks?agentname=a", "agentname", "agent_name"),
        ("/projects?limt=1", "limt", "limit"),
        ("/projects/p/runs/r?waitMS=1", "waitMS", "waitMs"),
    ],
)
def test_an_unknown_query_parameter_is_refused_with_a_guess(
    rota: Rota, path: str, name: str, meant: str
) -> None:
    answer = rota.get(path)
    assert answer.status == 400
    assert f"unknown query parameter '{name}'; did you mean '{meant}'?" in answer.body.decode()


def test_every_closed_route_refuses_what_it_does_not_know(rota: Rota) -> None:
    for route in CLOSED:
        path = re.sub(r"\{\w+\}", "x", route.path)
        answer = rota.request(route.method, f"{path}?zzzzzz=1")
        assert answer.status == 400, (route.method, route.path)
        assert "unknown query parameter 'zzzzzz'" in answer.body.decode()


@pytest.mark.parametrize("blank", ["", "=", "=%20"])
def test_a_blank_query_parameter_is_refused_and_filters_nothing(rota: Rota, blank: str) -> None:
    for route in CLOSED:
        path = re.sub(r"\{\w+\}", "x", route.path)
        for name in {*route.query, NAMESPACE_QUERY} - {"cursor"}:
            answer = rota.request(route.method, f"{path}?{name}{blank}")
            assert answer.status == 400, (route.method, route.path, name)
            assert f"query parameter '{name}': must not be blank" in answer.body.decode()
    answer = rota.get(f"/v1/tasks?agentId{blank}")
    assert answer.json["details"] == {"field": "agentId"}


def test_a_query_parameter_is_given_once(rota: Rota) -> None:
    answer = rota.get("/v1/tasks?state=ready&state=failed")
    assert (answer.status, answer.json["details"]) == (400, {"field": "state"})
    assert "more than once" in answer.json["error"]


def test_what_only_failed_tasks_have_is_asked_of_failed_tasks(rota: Rota) -> None:
    assert rota.get("/v1/tasks?state=failed&q=boom&code=timeout").status == 200
    assert rota.get("/v1/tasks?q=boom").json["details"] == {"field": "q"}


def test_documents_that_leave_unknown_names_open_have_it_so(rota: Rota) -> None:
    for path in ("/tasks", "/api/jobs", "/scheduler/stats", "/health", "/docs"):
        assert rota.get(f"{path}?zzzzzz=1").status == 200


def test_an_unknown_field_of_a_body_is_refused_with_a_guess(rota: Rota) -> None:
    body = {"agentid": "ann", "action": "echo"}
    assert "did you mean 'agentId'?" in rota.post("/v1/tasks", body).json["error"]
    body = {"agentId": "ann", "action": "echo", "retry": {"maxAttempt": 3}}
    assert "did you mean 'maxAttempts'?" in rota.post("/v1/tasks", body).json["error"]
    row = {"agent_name": "a", "task_type": "t", "max_attempt": 2}
    answer = rota.post("/automechanica/tasks", row)
    assert answer.status == 400
    assert "did you mean 'max_attempts'?" in answer.body.decode()
