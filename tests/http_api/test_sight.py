"""A caller whose sight is limited finds nothing of what it may not see, by any path that there is.

Here everybody is limited, in `Bridge.sight_for`, to all agents but two; tokens that are, by their
role, are in test_roles.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from support.http_server import until

from rota.eventlog.lmdb_store import LmdbLog
from rota.http.bridge import Bridge
from rota.http.routes import ROUTES
from rota.sight.sight import Sight

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.http_server import Answer, Rota, Servers

    from rota.eventlog.port import Stored

HIDDEN = ("ghost", "browseros")
SECRET = "gh0stly"
"""What every hidden task is given, and says."""

OF_THE_SHARD = {
    "/", "/docs", "/openapi.json", "/health", "/health/live", "/health/ready", "/metrics",
    "/v1/namespaces", "/v1/config", "/v1/events/head",
    "/v1/agents", "/v1/types", "/v1/scheduler", "/v1/stats", "/v1/stats/daily", "/scheduler/stats",
}  # fmt: skip
"""What shows the shard as a whole, or nothing of any task."""
GETS = [each for each in ROUTES if each.method == "GET" and each.path not in OF_THE_SHARD]
OF_ONE = sorted(each.path for each in GETS if "{id}" in each.path)
LISTS = sorted(each.path for each in GETS if "{id}" not in each.path and not each.is_stream)


class Limits:
    """Whether sights are limited at this moment."""

    are_on = False


class There(NamedTuple):
    """What there is: ids of the hidden, of the others, and how far the log goes."""

    hidden: list[str]
    shown: list[str]
    batches: list[str]
    shown_batch: str
    head: int


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Limits:
    limits = Limits()

    def sight_for(bridge: Bridge, by: str) -> Sight:
        del by
        if not limits.are_on:
            return bridge.sight
        return bridge.sight.limited_to(lambda agent: agent is not None and agent not in HIDDEN)

    monkeypatch.setattr(Bridge, "sight_for", sight_for)
    return limits


@pytest.fixture
def rota(serve: Servers) -> Rota:
    return serve({"scheduler": {"resultTTLSec": 3600}, "types": {"crawl": {}}})


@pytest.fixture
def there(rota: Rota, limits: Limits) -> Iterator[There]:
    made = {agent: _made(rota, agent) for agent in ("ghost", "ann")}
    task = rota.post("/tasks", {"instruction": SECRET}).json["taskId"]
    hidden, batch = made["ghost"]
    shown, shown_batch = made["ann"]
    tasks = [_item("ghost"), _item("ann")]
    mixed = rota.post("/v1/batches", {"tasks": tasks}).json["batchId"]
    spoken = rota.post("/tasks/batch", {"tasks": [{"instruction": SECRET}]}).json["batchId"]
    until(lambda: len(rota.get("/v1/tasks?state=failed").json["tasks"]) >= 2)
    head = rota.get("/v1/events/head").json["seq"]
    limits.are_on = True
    yield There([*hidden, task], shown, [batch, mixed, spoken], shown_batch, head)
    limits.are_on = False


def _item(agent: str) -> dict[str, Any]:
    return {"agentId": agent, "action": "waits", "params": {"text": _word(agent)}}


def _word(agent: str) -> str:
    return SECRET if agent in HIDDEN else "plain"


def _made(rota: Rota, agent: str) -> tuple[list[str], str]:
    """Have one task that succeeded, one that failed, three that wait, and a batch."""
    params = {"params": {"text": _word(agent)}}
    done = rota.submit_native(agent, **params)
    failed = rota.submit_native(agent, "fail", params={"message": _word(agent)})
    rota.ended(done), rota.ended(failed)
    waits = rota.submit_native(agent, "waits", **params)
    lines = {"lines": [_word(agent)]}
    assert rota.post(f"/v1/tasks/{waits}/logs", lines).status == 201
    by_tab = rota.submit(agent, "click", params={"text": _word(agent)})
    job = {"jobType": "crawl", "agentId": agent, "payload": {"text": _word(agent)}}
    by_job = rota.post("/api/jobs", job).json["data"]["jobId"]
    batch = rota.post("/v1/batches", {"tasks": [_item(agent), _item(agent)]}).json["batchId"]
    return [done, failed, waits, by_tab, by_job], batch


def _tells(answer: Answer, there: There) -> list[str]:
    """Name what an answer tells of what is hidden."""
    text = answer.body.decode()
    return [each for each in (*HIDDEN, SECRET, *there.hidden, there.batches[0]) if each in text]


@pytest.mark.parametrize("path", OF_ONE)
def test_what_is_hidden_is_not_found_and_the_answer_is_that_for_what_never_was(
    rota: Rota, there: There, path: str
) -> None:
    (known,) = {each.query for each in GETS if each.path == path}
    values = ("view=native", "waitMs=50", "at=1", f"at={there.head}")
    queries = [f"?{each}" for each in values if each.partition("=")[0] in known]
    for query in ("", *queries):
        never = rota.get(path.replace("{id}", "tsk_never") + query)
        for each in (*there.hidden, *there.batches):
            answer = rota.get(path.replace("{id}", each) + query)
            assert answer.status == never.status == 404, (each, answer)
            assert _without_id(answer) == _without_id(never)


READ = ("/v1/tasks/{id}", "/v1/batches/{id}", "/api/jobs/{id}", "/v1/tasks/{id}/events")


@pytest.mark.parametrize("path", [*READ, "/v1/tasks/{id}/logs", "/v1/tasks/{id}?at=1"])
def test_as_much_is_read_for_what_is_hidden_as_for_what_never_was(
    rota: Rota, there: There, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Else the time that a 404 takes tells one from the other."""
    item = {"agentId": HIDDEN[0], "action": "waits", "taskId": "listed"}
    assert rota.post("/v1/projects/hidden/tasks", item).status == 201
    reads: list[tuple[str, int]] = []
    known_of, read_task = LmdbLog.known_of, LmdbLog.read_task

    def counted(log: LmdbLog, task_ids: Sequence[str]) -> set[str]:
        reads.append(("known", len(task_ids)))
        return known_of(log, task_ids)

    def read(log: LmdbLog, *args: Any) -> list[Stored]:
        found = read_task(log, *args)
        reads.append(("read", len(found)))
        return found

    monkeypatch.setattr(LmdbLog, "known_of", counted)
    monkeypatch.setattr(LmdbLog, "read_task", read)
    found = []
    for each in (there.hidden[2], "listed", there.batches[0], "tsk_never"):
        reads.clear()
        assert rota.get(path.replace("{id}", each)).status == 404
        assert reads, each
        found.append([*reads])
    assert all(each == found[-1] for each in found), found


def _without_id(answer: Answer) -> Any:
    return {name: value for name, value in answer.json.items() if name != "requestId"}


def test_what_is_not_hidden_is_there_as_ever(rota: Rota, there: There) -> None:
    for each in there.shown:
        for path in ("/v1/tasks/{id}", "/tasks/{id}", "/api/jobs/{id}", "/v1/tasks/{id}/events"):
            assert rota.get(path.replace("{id}", each)).status == 200
        assert rota.get(f"/v1/tasks/{each}?at={there.head}").status == 200
    assert rota.get(f"/v1/tasks/{there.shown[2]}/logs").json["count"] == 1
    assert rota.get(f"/v1/batches/{there.shown_batch}").json["total"] == 2


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(
    "query",
    [
        "limit=1000",
        "limit=1000&agentId=ghost",
        "state=failed",
        "limit=1000&view=browseros",
        "page=1",
    ],
)
def test_no_list_has_any_of_it(rota: Rota, there: There, path: str, query: str) -> None:
    answer = rota.get(f"{path}?{query}")
    assert not _tells(answer, there), answer
    if path == "/tasks/stats":
        assert answer.json["total"] == 0


def test_the_others_are_listed(rota: Rota, there: There) -> None:
    assert len(rota.get("/v1/tasks").json["tasks"]) == len(there.shown) + 3
    failed = rota.get("/v1/tasks?state=failed").json["tasks"]
    assert there.shown[1] in {each["taskId"] for each in failed} <= set(there.shown)
    assert {each["agent"] for each in rota.events()} == {"ann"}
    assert rota.events(task=there.hidden[0]) == []


def _more(rota: Rota, limits: Limits, there: There) -> str:
    """Have something happen to what is hidden, and then to what is not; name that."""
    limits.are_on = False
    lines = {"lines": [SECRET]}
    assert rota.post(f"/v1/tasks/{there.hidden[2]}/logs", lines).status == 201
    rota.submit_native("ghost", params={"text": SECRET})
    last = rota.submit_native("ann", "waits")
    limits.are_on = True
    return last


@pytest.mark.parametrize("query", ["", "&kind=task_submitted", "&view=browseros", "&agentId=ann"])
@pytest.mark.parametrize("since", ["the beginning", "now"])
def test_no_stream_brings_any_of_it(
    rota: Rota, limits: Limits, there: There, query: str, since: str
) -> None:
    after = there.head if since == "now" else 0
    with rota.stream(f"/v1/events/stream?after={after}{query}") as stream:
        last = _more(rota, limits, there)
        for frame in stream:
            assert not any(each in str(frame.event) for each in (*HIDDEN, SECRET)), frame
            if last in str(frame.event):
                break


@pytest.mark.parametrize("query", ["task=TASK", "agentId=ghost"])
def test_a_stream_of_nothing_else_stays_silent(
    rota: Rota, limits: Limits, there: There, query: str
) -> None:
    path = "/v1/events/stream?after=0&" + query.replace("TASK", there.hidden[2])
    heard = b""
    with rota.connected(timeout_s=0.5) as sock:
        sock.sendall(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
        while b": rota event stream" not in heard:
            heard += sock.recv(1 << 16)
        _more(rota, limits, there)
        with pytest.raises(TimeoutError):
            while chunk := sock.recv(1 << 16):
                heard += chunk
    assert b"data:" not in heard


def test_nothing_of_it_can_be_changed_either(rota: Rota, there: There) -> None:
    for each in there.hidden:
        for path, body in (("cancel", None), ("retry", None), ("logs", {"lines": ["x"]})):
            assert rota.post(f"/v1/tasks/{each}/{path}", body).status == 404
        assert rota.post(f"/tasks/{each}/cancel").status == 404
        assert rota.post(f"/api/jobs/{each}/cancel").status == 404
    for each in there.batches:
        assert rota.post(f"/v1/batches/{each}/cancel").status == 404
    assert rota.post(f"/v1/batches/{there.shown_batch}/cancel").json["cancelled"] == 2


def test_what_has_left_memory_is_hidden_too(serve: Servers, limits: Limits) -> None:
    rota = serve({"scheduler": {"resultTTLSec": 1}})
    task = rota.submit_native("ghost", "fail", params={"message": SECRET})
    rota.ended(task)
    until(lambda: rota.inside(lambda s: task not in s.shard.state.tasks.by_id))
    assert rota.get(f"/v1/tasks/{task}").status == 200
    limits.are_on = True
    assert rota.get(f"/v1/tasks/{task}").status == 404
    assert rota.get("/v1/tasks?state=failed").json["tasks"] == []


def test_what_changed_while_a_list_was_made_is_not_in_it_by_what_it_was(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [rota.submit_native("ann", "waits") for _ in range(3)]
    look = Sight.page

    async def page(sight: Sight, *asked: Any) -> Any:
        found = await look(sight, *asked)
        bridge = rota.server.app.namespaces.default.bridge
        await bridge.cancel(tasks[1], "", "")
        return found

    monkeypatch.setattr(Sight, "page", page)
    shown = rota.get("/v1/tasks?state=ready").json["tasks"]
    assert [each["taskId"] for each in shown] == [tasks[2], tasks[0]]
