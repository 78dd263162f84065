"""/openapi.json tells what a client needs: examples that work, words of parameters, moments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import serving

from rota.http.examples import EXAMPLES
from rota.http.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http_server import Rota


@pytest.fixture(scope="module")
def rota(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rota]:
    with serving(tmp_path_factory.mktemp("openapi"), {"types": {"script_run": {}}}) as made:
        yield made


@pytest.fixture(scope="module")
def document(rota: Rota) -> dict[str, Any]:
    found: dict[str, Any] = rota.get("/openapi.json").json
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_every_body_has_an_example_that_a_server_takes(
    rota: Rota, document: dict[str, Any]
) -> None:
    for method, path, operation in operations(document):
        if "requestBody" not in operation:
            continue
        example = operation["requestBody"]["content"]["application/json"]["example"]
        answer = rota.request(method, re.sub(r"\{\w+\}", "unknown-1", path), example)
        assert answer.status in (200, 201, 202, 404, 409), (method, path, answer.body)


def test_the_job_example_says_what_its_server_needs(document: dict[str, Any]) -> None:
    fields = document["components"]["schemas"]["JobBody"]["properties"]
    assert "--preset browsermanager" in fields["jobType"]["description"]


def test_every_example_is_one_of_a_body() -> None:
    bodies = {route.body.__name__ for route in ROUTES if route.body is not None} | {"EnvBody"}
    assert set(EXAMPLES) == bodies


def test_every_query_parameter_says_what_it_means(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        for each in operation.get("parameters", ()):
            if each["in"] != "path":
                assert each["description"], (method, path, each["name"])
    for path, name, word, words in (
        ("/v1/tasks", "state", "succeeded", "ready,running"),
        ("/v1/events", "kind", "task_submitted", "run_ended,task_held"),
        ("/v1/events/stream", "kind", "task_submitted", "run_ended,task_held"),
    ):
        asked = document["paths"][path]["get"]["parameters"]
        (schema,) = [each["schema"] for each in asked if each["name"] == name]
        assert word in schema["examples"]
        assert re.fullmatch(schema["pattern"], words)
        assert not re.fullmatch(schema["pattern"], "sleepy")


def test_moments_and_idempotency_keys_are_told(document: dict[str, Any]) -> None:
    task = document["components"]["schemas"]["TaskView"]["properties"]
    assert task["createdAt"]["format"] == "date-time"
    assert {"type": "string", "format": "date-time"} in task["completedAt"]["anyOf"]
    for model, name in (
        ("FiringView", "moment"), ("FiringView", "lastMoment"), ("FiringView", "at"),
        ("ScheduleRow", "lastMoment"), ("ScheduleRow", "firedUntil"), ("ScheduleView", "lastMoment"),
        ("ScheduleView", "upcoming"),
    ):  # fmt: skip
        field = document["components"]["schemas"][model]["properties"][name]
        several = (field, field.get("items", {}), *field.get("anyOf", ()))
        assert any(each.get("format") == "date-time" for each in several), (model, name)
    keyed = {
        (method, path)
        for method, path, operation in operations(document)
        for each in operation.get("parameters", ())
        if each["name"] == "Idempotency-Key"
    }
    assert {("POST", "/v1/tasks"), ("POST", "/v1/batches"), ("POST", "/v1/workflows")} <= keyed
    assert {("POST", "/tasks"), ("POST", "/api/jobs"), ("POST", "/automechanica/tasks")} <= keyed
    assert ("POST", "/v1/tasks/{id}/cancel") not in keyed
