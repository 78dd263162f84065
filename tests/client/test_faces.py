"""Both faces of the client: the same calls, one blocking, one awaited."""

from __future__ import annotations

import asyncio
import inspect
import json
import pydoc
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from support.server_process import ServerProcess

from rota.client import RotaClient, SyncRotaClient
from rota.client.calls import Calls
from rota.client.faces import Asked, Iterated
from rota.client.sync_client import JsonClient
from rota.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    RotaError,
    ServerUnreachable,
    WaitTimeout,
)


def test_every_call_is_a_method_of_both_with_its_docstring():
    names = [
        name
        for name in dir(Calls)
        if isinstance(inspect.getattr_static(Calls, name), Asked | Iterated)
    ]
    assert {"submit", "wait_many", "stream", "settle", "create_token", "revive"} <= set(names)
    for face in (SyncRotaClient("http://127.0.0.1:1"), RotaClient("http://127.0.0.1:1")):
        for name in names:
            assert inspect.getdoc(getattr(face, name)), name
            assert "self" not in inspect.signature(getattr(face, name)).parameters
            assert next(iter(inspect.signature(getattr(type(face), name)).parameters)) == "self"


def shown(thing: object) -> str:
    """What help() says of something."""
    return pydoc.plain(pydoc.render_doc(thing))


def test_help_says_how_a_call_is_made_and_what_it_gives():
    submit = "submit(self, /, action: 'str', agent: 'str', **fields: 'Unpack[TaskFields]') -> "
    assert submit + "Submitted\n" in shown(SyncRotaClient.submit)
    assert submit + "Awaitable[Submitted]\n" in shown(RotaClient.submit)
    assert "Submit a task" in shown(RotaClient.submit)
    client = SyncRotaClient("http://127.0.0.1:1")
    assert "**fields: 'Unpack[TaskFields]') -> Submitted\n" in shown(client.submit)
    assert "-> Iterator[Task]\n" in shown(client.iter_tasks)
    assert "-> AsyncIterator[Task]\n" in shown(RotaClient.iter_tasks)
    assert "-> list[Task]\n" in shown(client.wait_many)
    assert submit + "Awaitable[Submitted]\n" in shown(RotaClient)


def test_a_call_of_the_class_is_the_clients_too(rota):
    made = SyncRotaClient.submit(rota, "echo", "classes")
    assert rota.wait(made.task_id, 10).state == "succeeded"


def test_the_awaited_face_submits_waits_and_raises(server):
    async def story():
        async with RotaClient(server.url) as rota:
            task = await rota.submit("echo", "faces", params={"n": 1})
            done = await rota.wait(task.task_id, 10)
            assert (done.state, done.result) == ("succeeded", {"echo": {"n": 1}})
            with pytest.raises(Conflict):
                await rota.cancel(task.task_id)
            with pytest.raises(NotFound):
                await rota.get("tsk_/../x?y")
            with pytest.raises(InvalidRequest):
                await rota.submit("echo", "faces", nonsense=1)
            rows = [row async for row in rota.iter_tasks(agent="faces")]
            assert [row.task_id for row in rows] == [task.task_id]
            assert [e.kind for e in await rota.task_events(task.task_id)][-1] == "task_succeeded"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("ask", "field", "meant"),
    [
        (lambda rota: rota.submit("a", agent="b", timeoutMs=7), "timeoutMs", "timeout_s"),
        (lambda rota: rota.submit("a", agent="b", tmeout_s=7), "tmeout_s", "timeout_s"),
        (lambda rota: rota.submit("a", agent="b", retry={"baseMs": 3}), "retry.baseMs", "base_s"),
        (lambda rota: rota.submit_many([{"action": "a", "agentId": "b"}]), "agentId", "agent"),
        (lambda rota: rota.submit_batch([{"action": "a"}], agentId="b"), "agentId", "agent"),
        (
            lambda rota: rota.submit_workflow([{"action": "a", "dependsOn": [0]}], agent="b"),
            "tasks.0.dependsOn",
            "depends_on",
        ),
        (lambda rota: rota.cancel_many(agentId="b"), "agentId", "agent"),
        (
            lambda rota: rota.create_schedule("s", "@daily", task={"agentId": "b", "action": "a"}),
            "task.agentId",
            "agent",
        ),
        (lambda rota: rota.change_schedule("s", catchUp="all"), "catchUp", "catch_up"),
        (lambda rota: rota.add_to_project("p", "a", timeoutMs=7), "timeoutMs", "timeout_s"),
        (
            lambda rota: rota.add_many_to_project("p", [{"action": "a", "tabId": "t"}]),
            "tasks.0.tabId",
            "tab_id",
        ),
        (lambda rota: rota.edit_project_task("p", "t", tabId="t"), "tabId", "tab_id"),
        (lambda rota: rota.change_limits(maxInflight=3), "maxInflight", "max_inflight"),
        (lambda rota: rota.change_limits(max_inflght=3), "max_inflght", "max_inflight"),
        (lambda rota: rota.lease("w", wants=[{"types": ["a"]}]), "wants.0.types", "actions"),
        (lambda rota: rota.settle("w", [{"leaseId": "l"}]), "outcomes.0.leaseId", "lease_id"),
    ],
)
def test_a_name_that_is_not_pythons_is_refused_with_a_guess_before_anything_is_sent(
    ask, field, meant
):
    with pytest.raises(InvalidRequest) as caught:
        ask(SyncRotaClient("http://127.0.0.1:1", retries=0))
    assert str(caught.value) == f"unknown field '{field}'; did you mean '{meant}'?"
    assert caught.value.details == {"field": field}


@pytest.mark.parametrize(
    ("ask", "said", "field"),
    [
        (
            lambda rota: rota.submit("a", agent="b", timeout_s=-1),
            "field 'timeout_s': must be at least 0.001",
            "timeout_s",
        ),
        (
            lambda rota: rota.submit("a", agent="b", retry={"max_s": 1e9}),
            "field 'retry.max_s': must be at most 86400",
            "retry.max_s",
        ),
        (
            lambda rota: rota.submit("a", agent="b", queue_timeout_s="5"),
            "field 'queue_timeout_s': must be a number",
            "queue_timeout_s",
        ),
        (
            lambda rota: rota.submit("a", agent="b", delay_s=1, not_before="2030-01-01T00:00:00Z"),
            "field 'delay_s': give either not_before or delay_s, not both",
            "delay_s",
        ),
        (
            lambda rota: rota.submit_batch([{"action": "a"}]),
            "missing required field 'tasks.0.agent', or 'agent' for the whole batch",
            "tasks.0.agent",
        ),
        (
            lambda rota: rota.cancel_many(agent="b", everything=True),
            "field 'everything': give either that or agent",
            "everything",
        ),
        (
            lambda rota: rota.create_token("n", "submit", expires_s=-1),
            "field 'expires_s': must be at least 1",
            "expires_s",
        ),
    ],
)
def test_a_refusal_names_fields_as_they_were_given_and_bounds_in_seconds(rota, ask, said, field):
    with pytest.raises(InvalidRequest) as caught:
        ask(rota)
    assert (str(caught.value), caught.value.details) == (said, {"field": field})


def test_a_refusal_without_a_filter_says_how_to_mean_everything(rota):
    with pytest.raises(InvalidRequest, match="older_than_s, .* or all with everything=True"):
        rota.cancel_many()


def test_limits_are_changed_in_pythons_words_and_units(tmp_path):
    with ServerProcess(tmp_path / "data") as process, SyncRotaClient(process.url) as rota:
        changed = rota.change_limits(max_inflight=40, sticky_s=0.5, result_ttl_s=60)["scheduler"]
        assert (changed["maxInflight"], changed["stickyMs"]) == (40, 500)
        assert changed["resultTTLSec"] == 60
        with pytest.raises(InvalidRequest, match=r"scheduler\.sticky_s: must be at most 60 "):
            rota.change_limits(sticky_s=100)
        with pytest.raises(InvalidRequest, match=r"scheduler\.result_ttl_s: must be at least 1 "):
            rota.change_limits(result_ttl_s=-1)


def test_tasks_and_workflows_of_several_states_are_listed(rota):
    done = rota.wait(rota.submit("echo", "listed").task_id, 10)
    waits = rota.submit("nobody-does", "listed")
    both = rota.tasks(agent="listed", state=["succeeded", "ready"]).tasks
    assert {each.task_id for each in both} == {done.task_id, waits.task_id}
    assert [each.task_id for each in rota.iter_tasks(agent="listed", state="ready")] == [
        waits.task_id
    ]
    assert rota.workflows(state=["failed", "escalated"]).workflows == []


def test_params_and_a_client_for_json_keep_the_words_that_they_came_with(rota, server):
    params = {"timeoutMs": 5, "in_s": [{"dependsOn": 1.5}]}
    task = rota.submit("nobody-does", agent="b", params=params)
    assert rota.get(task.task_id).params == params
    with JsonClient(server.url) as client, pytest.raises(InvalidRequest, match="'timeoutMs'"):
        client.submit("a", agent="b", timeout_s=-1)


def test_many_are_submitted_and_waited_for_by_the_feed(rota):
    made = rota.submit_many(
        [{"action": "sleep", "params": {"ms": n}} for n in (60, 1, 30)], agent="m"
    )
    ended = []
    tasks = rota.wait_many([each.task_id for each in made], 20, on_end=ended.append)
    assert [task.task_id for task in tasks] == [each.task_id for each in made]
    assert {task.state for task in tasks} == {"succeeded"}
    assert len(ended) == 3


def test_refusals_among_many_are_told_in_their_places(rota):
    tasks = [{"action": "echo"}, {"action": "echo", "priority": "urgent"}]
    good, bad = rota.submit_many(tasks, agent="some", raises=False)
    assert good.task_id
    assert bad.code == "bad_request"
    with pytest.raises(InvalidRequest):
        rota.submit_many(tasks, agent="some")


def test_wait_many_says_when_the_time_is_over(rota):
    done, never = (
        rota.submit("echo", "late").task_id,
        rota.submit("nobody-does", "late").task_id,
    )
    with pytest.raises(WaitTimeout, match=r"1 of 2 tasks have not ended after 0\.3 s") as caught:
        rota.wait_many([done, never], 0.3)
    assert [task.state for task in caught.value.last] == ["succeeded", "ready"]
    assert rota.wait_many([]) == []


def test_a_batch_is_waited_for_with_its_progress(rota):
    items = [{"action": "sleep", "params": {"ms": 20}} for _ in range(3)]
    told = []
    batch = rota.submit_batch(items, agent="progress")
    end = rota.wait_batch(batch.batch_id, 20, on_progress=lambda *args: told.append(args))
    assert (end.state, told[-1]) == ("finished", (3, 3))


def test_a_stream_goes_on_after_the_server_was_killed(tmp_path):
    with ServerProcess(tmp_path / "data") as first:
        rota = SyncRotaClient(first.url)
        lost = []
        stream = rota.stream(after=0, kinds=("task_succeeded",), on_lost=lost.append)
        one = rota.submit("echo", "a").task_id
        assert next(stream).task_id == one
        first.kill()
        first.args = ("--port", str(first.port))
        first.start()
        two = rota.submit("echo", "a").task_id
        assert next(stream).task_id == two
        assert lost
        stream.close()
        rota.close()


@contextmanager
def scripted(*answers):
    """Answer each request by the next of a script: a status and a body, or None to hang up."""
    script, seen = iter(answers), []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            seen.append(
                (
                    self.client_address,
                    json.loads(self.rfile.read(int(self.headers["Content-Length"]))),
                )
            )
            answer = next(script)
            if answer is None:
                self.close_connection = True
                return
            raw = json.dumps(answer[1]).encode()
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *args):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


AWAY = (503, {"code": "storage_unavailable", "error": "away", "retryable": True})
TAKEN = (202, {"taskId": "tsk_1", "state": "ready"})


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_submit_is_sent_again_with_the_same_key(face):
    with scripted(AWAY, None, TAKEN) as (url, seen):
        if face == "sync":
            with SyncRotaClient(url) as rota:
                answer = rota.submit("echo", "a")
        else:

            async def story():
                async with RotaClient(url) as rota:
                    return await rota.submit("echo", "a")

            answer = asyncio.run(story())
    assert answer.task_id == "tsk_1"
    keys = {body["idempotencyKey"] for _, body in seen}
    assert len(seen) == 3
    assert len(keys) == 1


def test_what_is_not_safe_is_sent_once_and_retries_are_bounded():
    with scripted(AWAY, TAKEN) as (url, seen), SyncRotaClient(url) as rota:
        with pytest.raises(RotaError):
            rota.cancel("tsk_1")
        assert len(seen) == 1
    with scripted(*[AWAY] * 9) as (url, seen), SyncRotaClient(url, retries=2) as rota:
        with pytest.raises(RotaError) as caught:
            rota.submit("echo", "a")
        assert caught.value.code == "storage_unavailable"
        assert len(seen) == 3
    with scripted(AWAY) as (url, seen), SyncRotaClient(url, retries=0) as rota:
        with pytest.raises(RotaError):
            rota.submit("echo", "a")
        assert "idempotencyKey" not in seen[0][1]


def test_a_connection_is_used_again():
    with scripted(TAKEN, TAKEN, TAKEN) as (url, seen), SyncRotaClient(url) as rota:
        for _ in range(3):
            rota.submit("echo", "a")
        assert len({address for address, _ in seen}) == 1


def test_nothing_listening_is_unreachable_for_both():
    async def story():
        async with RotaClient("http://127.0.0.1:1", retries=0) as rota:
            await rota.head()

    with pytest.raises(ServerUnreachable):
        asyncio.run(story())
    with pytest.raises(ServerUnreachable):
        SyncRotaClient("http://127.0.0.1:1", retries=0).head()
