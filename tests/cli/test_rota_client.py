"""`RotaClient`: what a server refuses comes back as the error that it was."""

from __future__ import annotations

import pytest
from support.server_process import ServerProcess

from rota.client.client import RotaClient, ServerUnreachable
from rota.errors import (
    CallbackRefused,
    Conflict,
    InvalidRequest,
    NotFound,
    QueueFull,
    RequestError,
)

TOKEN = "0123456789abcdef-ü"


def test_refusals_keep_class_code_and_details(client):
    with pytest.raises(InvalidRequest) as caught:
        client.submit("echo", "a", nonsense=1)
    assert caught.value.details == {"field": "nonsense"}
    with pytest.raises(NotFound):
        client.get("tsk_/../x?y")
    with pytest.raises(CallbackRefused):
        client.submit("echo", "a", callbackUrl="http://127.0.0.1:1/")
    task = client.wait(client.submit("echo", "a")["taskId"], 10)
    with pytest.raises(Conflict) as conflict:
        client.cancel(task["taskId"])
    assert conflict.value.status == 409


def test_full_queue_is_retryable(tmp_path):
    config = {"scheduler": {"maxPerAgent": 1, "maxInflight": 1, "maxPerAgentInflight": 1}}
    with ServerProcess(tmp_path / "data", config=config) as process:
        client = RotaClient(process.url)
        with pytest.raises(QueueFull) as caught:
            for _ in range(3):
                client.submit("wait-here", "a")
    assert caught.value.retryable


def test_nothing_listening_is_unreachable():
    with pytest.raises(ServerUnreachable) as caught:
        RotaClient("http://127.0.0.1:1").head()
    assert caught.value.code == "unreachable"


def test_token_is_sent_and_wanted(tmp_path, typed):
    config = {"server": {"tokens": {"ops": TOKEN}}}
    with ServerProcess(tmp_path / "data", config=config) as process:
        task = RotaClient(process.url, token=TOKEN).submit("echo", "a")["taskId"]
        assert 'Bearer $ROTA_TOKEN"' in process.output()
        with pytest.raises(RequestError) as caught:
            RotaClient(process.url, token="wrong").get(task)
        assert caught.value.code == "unauthorized"
        words = ("get", task, "--url", process.url)
        assert typed(*words, env={"ROTA_TOKEN": TOKEN}).exit_code == 0
        refused = typed(*words)
        assert refused.exit_code == 1
        assert "--token" in refused.stderr


def test_token_that_would_break_the_header_is_refused():
    with pytest.raises(InvalidRequest):
        RotaClient(token="x\r\nX-Evil: 1")


def test_stream_gives_events_from_a_seq_on(client):
    task = client.submit("echo", "stream")["taskId"]
    stream = client.stream(after=0, task=task)
    kinds = [next(stream)["kind"] for _ in range(4)]
    stream.close()
    assert kinds == ["task_submitted", "task_assigned", "task_started", "task_succeeded"]


def test_stream_that_cannot_be_made_at_first_is_an_error():
    with pytest.raises(ServerUnreachable):
        next(RotaClient("http://127.0.0.1:1").stream(after=0))
