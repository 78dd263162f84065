"""What an agent's token hears of others' things: byte for byte what it hears of what never was.

Every route that a scoped token may ask, with everything there is of another agent in the place of
every name in a path, a query or a body.
"""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from support.tokens import Guarded

from rota.domain.tokens import ROLES
from rota.http.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http_server import Answer, Servers

    from rota.http.route import Route

ANN = {"agentId": "ann", "action": "waits"}
NEW = ("taskId", "batchId", "position", "createdAt", "requestId", "timestamp")


class Others:
    """A server with one of each thing that can be, all of them bob's, or bob's and ann's."""

    def __init__(self, serve: Servers) -> None:
        guarded = self.guarded = Guarded(serve, {"types": {"crawl": {}}})
        for role in ("submit", "work"):
            guarded.make(role, role, "ann")
        bobs = {"agentId": "bob", "tasks": [{"action": "waits"}]}
        mixed = {"tasks": [{"action": "waits", "agentId": each} for each in ("ann", "bob")]}
        self.ids = {
            "waiting": self._task(key="lock"),
            "named": self._task(taskId="theirs-by-name"),
            "done": self._task(action="echo"),
            "failed": self._task(action="fail"),
            "batch": self._make("/v1/batches", bobs)["batchId"],
            "mixed batch": self._make("/v1/batches", mixed)["batchId"],
            "workflow": self._make("/v1/workflows", {**bobs, "open": True})["workflowId"],
            "mixed workflow": self._make("/v1/workflows", {**mixed, "open": True})["workflowId"],
            "empty workflow": self._make("/v1/workflows", {"tasks": [], "open": True})[
                "workflowId"
            ],
            "job": self._make("/api/jobs", {"jobType": "crawl"})["data"]["jobId"],
            "chat": self._make("/tasks", {"instruction": "look"})["taskId"],
            "project": "theirs",
            "schedule": "theirs-nightly",
        }
        for each in ("done", "failed"):
            guarded.rota.ended(self.ids[each])
        self._project()
        self._lease()
        schedule = {"name": self.ids["schedule"], "cron": "0 0 * * *", "task": {"agentId": "bob"}}
        schedule["task"]["action"] = "waits"
        self._make("/v1/schedules", schedule)

    def _make(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.guarded.rota.post(path, body)
        assert answer.status < 300, answer
        made: dict[str, Any] = answer.json
        return made

    def _task(self, **fields: Any) -> str:
        task: str = self._make("/v1/tasks", {"agentId": "bob", "action": "waits", **fields})[
            "taskId"
        ]
        return task

    def _project(self) -> None:
        bobs = {"agentId": "bob", "action": "waits"}
        self.item = self._make("/v1/projects/theirs/tasks", bobs)["taskId"]
        self.run = self._make("/v1/projects/theirs/run", {})["runId"]

    def _lease(self) -> None:
        self._task(action="lent")
        self._task(action="lent")
        wants = {"workerId": "bobs", "types": ["lent"], "max": 2}
        lease, over = self._make("/v1/leases", wants)["leases"]
        self._make(f"/v1/leases/{over['leaseId']}/complete", {"token": over["token"]})
        self.token = lease["token"]
        self.ids |= {"leased": lease["taskId"], "lease": lease["leaseId"], "over": over["leaseId"]}

    def path(self, route: Route, name: str) -> str:
        path = route.path.replace("{id}", name).replace("{name}", name)
        return path.replace("{task}", self.item).replace("{run}", self.run)

    def bodies(self, route: Route) -> list[Any]:
        if route.method not in ("POST", "PATCH"):
            return [None]
        last = route.path.rpartition("/")[2]
        if "/leases/" in route.path:
            more = {"error": "x"} if last == "fail" else {}
            said = [{"token": self.token}, {"token": 1}, {"token": self.token, "workerId": "bobs"}]
            return [{}, *({**each, **more} for each in said)]
        fields = {
            "logs": {"lines": ["x"]},
            "progress": {"progress": 1},
            "reprioritise": {"priority": 1},
            "tasks": ANN,
        }
        return [None, {"nonsense": 1}, fields.get(last, {})]


@pytest.fixture
def others(serve: Servers) -> Others:
    return Others(serve)


def never(name: str) -> str:
    """Make a name of the same shape that nothing has."""
    if name.startswith("lse_"):
        return f"{name.rpartition('_')[0]}_{'z' * len(name.rpartition('_')[2])}"
    return name[:4] + "z" * (len(name) - 4)


def told(answer: Answer, name: str) -> tuple[Any, ...]:
    """Give all that an answer says, but for the name that was asked for and what is drawn anew."""
    new = ("x-request-id", "date", "content-length")
    headers = {key: value for key, value in answer.headers.items() if key not in new}
    return answer.status, headers, json.dumps(_plain(answer.json, name)).replace(name, "NAME")


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if key not in NEW or each == name}
        return {key: _plain(each, name) for key, each in kept.items()}
    return [_plain(each, name) for each in value] if isinstance(value, list) else value


def may(role: str) -> list[Route]:
    return [
        route
        for route in ROUTES
        if not route.public and route.needs in ROLES[role] and not route.is_stream
    ]


@pytest.mark.parametrize("role", ["submit", "work"])
def test_what_is_anothers_is_answered_as_what_never_was(others: Others, role: str) -> None:
    ask = others.guarded.ask
    for route, (kind, name) in product(may(role), others.ids.items()):
        if "{" not in route.path:
            continue
        absent = never(name)
        for body in others.bodies(route):
            there = told(ask(role, route.method, others.path(route, name), body), name)
            gone = told(ask(role, route.method, others.path(route, absent), body), absent)
            assert there == gone, (route.method, route.path, kind, body)
            assert "bob" not in there[2]


@pytest.mark.parametrize("role", ["submit", "work"])
def test_no_filter_finds_what_is_anothers(others: Others, role: str) -> None:
    for route in may(role):
        names = [*others.ids.items(), ("agent", "bob"), ("key", "lock"), ("type", "lent")]
        for field, (kind, name) in product(route.query, names):
            if "{" in route.path or kind.startswith("mixed"):
                continue  # ann's own tasks say what they are of
            path = f"{route.path}?{field}="
            there = told(others.guarded.ask(role, route.method, path + name), name)
            gone = told(others.guarded.ask(role, route.method, path + never(name)), never(name))
            assert there == gone, (path, kind)


def submissions(name: str) -> Iterator[tuple[str, Any]]:
    """Name something wherever a body can."""
    yield "/v1/tasks", {**ANN, "workflowId": name}
    yield "/v1/tasks", {**ANN, "dependsOn": [name]}
    yield "/v1/tasks", {**ANN, "dependsOn": [name], "onMissing": "wait"}
    yield "/v1/batches", {"tasks": [{**ANN, "dependsOn": [name]}]}
    yield "/v1/batches", {"tasks": [{**ANN, "workflowId": name}]}
    yield "/v1/projects/run", {"projectIds": [name]}
    yield "/v1/projects/stop", {"projectIds": [name]}
    yield "/v1/projects/force-stop", {"projectIds": [name]}
    for how in ("cancel", "retry", "reprioritise"):
        more = {"priority": 1} if how == "reprioritise" else {}
        for field in ("batchId", "workflowId", "agentId", "key", "type"):
            yield f"/v1/tasks/{how}", {field: name, **more}


def test_no_body_finds_what_is_anothers(others: Others) -> None:
    for kind, name in (*others.ids.items(), ("agent", "bob"), ("key", "lock")):
        if kind.startswith("mixed"):
            continue
        for (path, there), (_, gone) in zip(
            submissions(name), submissions(never(name)), strict=True
        ):
            found = told(others.guarded.ask("submit", "POST", path, there), name)
            absent = told(others.guarded.ask("submit", "POST", path, gone), never(name))
            assert found == absent, (path, kind, there)
        said = {"token": others.token, "outcome": "complete"}
        heard = []
        for each in (name, never(name)):
            body = {"workerId": "bobs", "outcomes": [{"leaseId": each, **said}]}
            heard.append(told(others.guarded.ask("work", "POST", "/v1/leases/settle", body), each))
        assert heard[0] == heard[1], kind


def test_keys_of_another_tokens_are_not_known(others: Others) -> None:
    theirs = {"agentId": "bob", "action": "waits", "idempotencyKey": "k", "dedup": {"key": "d"}}
    assert others.guarded.rota.post("/v1/tasks", theirs).status == 202
    for field, used, free in (("idempotencyKey", "k", "l"), ("dedup", {"key": "d"}, {"key": "e"})):
        heard = [
            told(others.guarded.ask("submit", "POST", "/v1/tasks", {**ANN, field: each}), "-")
            for each in (used, free)
        ]
        assert heard[0] == heard[1]
