"""The BrowserOS task queue document: bodies that nobody should send. None of them gets in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.chat_server import Chat, chatting, with_chat
from support.http_server import Servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http_server import Rota

OVER = 10**30


@pytest.fixture(scope="module")
def chat() -> Iterator[Chat]:
    with chatting() as made:
        yield made


@pytest.fixture(scope="module")
def rota(chat: Chat, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rota]:
    """One server for all: what is refused leaves nothing behind."""
    servers = Servers(tmp_path_factory.mktemp("input"))
    try:
        yield servers(with_chat(chat))
    finally:
        servers.close()


@pytest.fixture(autouse=True)
def untouched(rota: Rota) -> Iterator[None]:
    """Each test must leave the server as it was: no task, no record, and still at work."""
    before = rota.get("/v1/events/head").json
    yield
    assert rota.get("/v1/events/head").json == before
    assert rota.get("/health").json["status"] == "ok"


def refused(rota: Rota, field: str, **body: Any) -> None:
    """Refused alone and in a batch, with the name of the field and a sentence."""
    item = {"instruction": "look", **body}
    for path, whole, name in (
        ("/tasks", item, field),
        ("/tasks/batch", {"tasks": [{"instruction": "good"}, item]}, f"tasks.1.{field}"),
    ):
        answer = rota.post(path, whole)
        assert answer.status == 400, answer
        found = answer.json
        assert found["code"] == "bad_request"
        named = found["details"]["field"]
        assert named in (name, field) or named.startswith(f"{name}."), found
        assert field.rpartition(".")[2] in found["error"]


@pytest.mark.parametrize("value", ["", "  \n", None, 5, ["x"], {"a": 1}, True, "x" * 100_001])
def test_an_instruction_is_a_text(rota: Rota, value: Any) -> None:
    refused(rota, "instruction", instruction=value)


@pytest.mark.parametrize("value", [-1, 100, OVER, 1.5, "3", True, [3], float("inf")])
def test_max_retries_is_from_0_to_99(rota: Rota, value: Any) -> None:
    if value == float("inf"):
        raw = b'{"instruction": "look", "retryPolicy": {"maxRetries": Infinity}}'
        assert rota.request("POST", "/tasks", raw=raw).status == 400
        return
    refused(rota, "retryPolicy.maxRetries", retryPolicy={"maxRetries": value})


@pytest.mark.parametrize("value", [-1, -1000, 24 * 3600 * 1000 + 1, OVER, 0.5, "1s", False])
def test_backoff_ms_is_from_0_to_a_day(rota: Rota, value: Any) -> None:
    refused(rota, "retryPolicy.backoffMs", retryPolicy={"backoffMs": value})


@pytest.mark.parametrize("value", [0, -2, 0.99, 101, 1e308, "2", True, []])
def test_backoff_multiplier_is_from_1_to_100(rota: Rota, value: Any) -> None:
    refused(rota, "retryPolicy.backoffMultiplier", retryPolicy={"backoffMultiplier": value})


@pytest.mark.parametrize("value", [5, "exponential", [], True])
def test_a_retry_policy_is_an_object(rota: Rota, value: Any) -> None:
    refused(rota, "retryPolicy", retryPolicy=value)


@pytest.mark.parametrize("value", [0, -1, 600_001, OVER, 1.5, "1000", True, [1]])
def test_timeout_ms_is_from_1_to_600000(rota: Rota, value: Any) -> None:
    refused(rota, "timeoutMs", timeoutMs=value)


@pytest.mark.parametrize("value", ["x", 5, {"a": "b"}, [None], [[]], [{}], [1.5], [True], [""]])
def test_depends_on_is_a_list_of_ids(rota: Rota, value: Any) -> None:
    refused(rota, "dependsOn", dependsOn=value)


@pytest.mark.parametrize("value", ["maybe", "", 1, True])
def test_on_missing_is_wait_or_fail(rota: Rota, value: Any) -> None:
    refused(rota, "onMissing", onMissing=value)


@pytest.mark.parametrize("value", ["x", 5, [], True])
def test_llm_config_is_an_object(rota: Rota, value: Any) -> None:
    refused(rota, "llmConfig", llmConfig=value)


@pytest.mark.parametrize("value", ["", " ", "a b", "a/b", "tsk_1", "bat_1", "x" * 101, "ü", 5, [1]])
def test_an_own_id_fits_into_a_path(rota: Rota, value: Any) -> None:
    refused(rota, "taskId", taskId=value)


@pytest.mark.parametrize("count", [1001, 90_000])
def test_too_many_dependencies_are_refused(rota: Rota, count: int) -> None:
    refused(rota, "dependsOn", dependsOn=[f"task-{n}" for n in range(count)])


def test_forty_thousand_tasks_in_a_batch_are_refused(rota: Rota) -> None:
    answer = rota.post("/tasks/batch", {"tasks": [{"instruction": "x"}] * 40_000})
    assert (answer.status, answer.code) == (400, "batch_too_large")


@pytest.mark.parametrize("path", ["/tasks", "/tasks/batch"])
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"instruction"',
        b'{"instruction": "x"',
        b'{"instruction": NaN}',
        b'{"instruction": "\\ud800"}',
        b'{"instruction": "\xff"}',
        b'{"tasks": [{"instruction": "x"}]',
        b"{}",
    ],
)
def test_a_body_that_is_no_task_is_refused(rota: Rota, path: str, raw: bytes) -> None:
    answer = rota.request("POST", path, raw=raw)
    assert answer.status == 400
    assert answer.json["error"]


def test_a_body_nested_too_deep_is_refused(rota: Rota) -> None:
    deep = b'{"a":' * 100 + b"1" + b"}" * 100
    answer = rota.request("POST", "/tasks", raw=b'{"instruction":"x","llmConfig":' + deep + b"}")
    assert (answer.status, answer.code) == (400, "too_deep")


def test_a_body_that_is_too_large_is_refused(rota: Rota) -> None:
    body = {"instruction": "x", "llmConfig": {"a": "b" * (5 << 20)}}
    assert rota.post("/tasks", body).status == 413


def test_a_body_of_another_type_is_refused(rota: Rota) -> None:
    answer = rota.post("/tasks", {"instruction": "x"}, **{"Content-Type": "text/plain"})
    assert answer.status == 415


@pytest.mark.parametrize("query", ["state=waiting", "limit=-1", "limit=x", "cursor=x"])
def test_lists_refuse_senseless_questions(rota: Rota, query: str) -> None:
    answer = rota.get(f"/tasks?{query}")
    assert (answer.status, answer.code) == (400, "bad_request")
