"""`JsonClient`: what a server refuses comes back as the error that it was."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from support.server_process import ServerProcess

from rota.client.sync_client import JsonClient
from rota.errors import (
    CallbackRefused,
    Conflict,
    InvalidRequest,
    NotFound,
    QueueFull,
    RequestError,
    ServerUnreachable,
    WaitTimeout,
)

TOKEN = "0123456789abcdef-ü"


def test_refusals_keep_class_code_and_details(client):
    with pytest.raises(InvalidRequest) as caught:
        client.submit("echo", "a", nonsense=1)
    assert caught.value.details == {"field": "nonsense"}
    with pytest.raises(NotFound):
        client.get("tsk_/../x?y")
    with pytest.raises(CallbackRefused):
        client.submit("echo", "a", callback_url="http://127.0.0.1:1/")
    task = client.wait(client.submit("echo", "a")["taskId"], 10)
    with pytest.raises(Conflict) as conflict:
        client.cancel(task["taskId"])
    assert conflict.value.status == 409


def test_more_exact_codes_keep_their_class(client):
    task = client.submit("wait-here", "codes", task_id="codes-1", dedup={"key": "codes"})["taskId"]
    assert task == "codes-1"
    with pytest.raises(Conflict) as taken:
        client.submit("wait-here", "codes", task_id="codes-1")
    assert taken.value.code == "id_taken"
    with pytest.raises(Conflict) as doubled:
        client.submit("wait-here", "codes", dedup={"key": "codes"})
    assert (doubled.value.code, doubled.value.details["taskId"]) == ("duplicate", "codes-1")


def test_get_can_wait_for_the_end(client):
    task = client.submit("sleep", "waits", params={"ms": 50})["taskId"]
    assert client.get(task, wait_s=30)["state"] == "succeeded"
    open_end = client.submit("wait-here", "waits")["taskId"]
    assert client.get(open_end, wait_s=0.01)["state"] == "ready"
    with pytest.raises(WaitTimeout) as caught:
        client.wait(open_end, 0.01)
    assert caught.value.last["state"] == "ready"


def test_get_gives_a_task_as_it_was(client):
    task = client.submit("echo", "was")["taskId"]
    end = client.wait(task, 10)
    seqs = [each["seq"] for each in client.task_events(task)]
    states = [client.get(task, at=seq)["state"] for seq in seqs]
    assert states == ["ready", "assigned", "running", "succeeded"]
    assert client.get(task, at=seqs[-1]) == end
    assert client.get(task, at=end["completedAt"].replace("Z", "+00:00"))["taskId"] == task
    with pytest.raises(NotFound):
        client.get(task, at=seqs[0] - 1)
    with pytest.raises(InvalidRequest):
        client.get(task, at="2999-01-01T00:00:00Z")
    with pytest.raises(InvalidRequest):
        client.get(task, at=1, wait_s=1)


@pytest.mark.parametrize("refusal", [(503, "too_many_streams"), (429, "too_many_waiting")])
def test_wait_goes_on_when_the_server_cannot_hold_another_request(refusal):
    answers = {"tsk_1": iter(["ready", "running", "succeeded"])}

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self):
            if "waitMs" in self.path:
                status, body = refusal[0], {"code": refusal[1], "error": "too many wait"}
            else:
                status, body = 200, {"taskId": "tsk_1", "state": next(answers["tsk_1"])}
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as busy:
        threading.Thread(target=busy.serve_forever).start()
        try:
            task = JsonClient(f"http://127.0.0.1:{busy.server_port}").wait("tsk_1", 30)
        finally:
            busy.shutdown()
    assert task["state"] == "succeeded"


def test_full_queue_is_retryable(tmp_path):
    config = {"scheduler": {"maxPerAgent": 1, "maxInflight": 1, "maxPerAgentInflight": 1}}
    with ServerProcess(tmp_path / "data", config=config) as process:
        client = JsonClient(process.url)
        with pytest.raises(QueueFull) as caught:
            for _ in range(3):
                client.submit("wait-here", "a")
    assert caught.value.retryable


def test_nothing_listening_is_unreachable():
    with pytest.raises(ServerUnreachable) as caught:
        JsonClient("http://127.0.0.1:1").head()
    assert caught.value.code == "unreachable"


def test_token_is_sent_and_wanted(tmp_path, typed):
    config = {"server": {"tokens": {"ops": TOKEN}}}
    with ServerProcess(tmp_path / "data", config=config) as process:
        task = JsonClient(process.url, token=TOKEN).submit("echo", "a")["taskId"]
        assert 'Bearer $ROTA_TOKEN"' in process.output()
        with pytest.raises(RequestError) as caught:
            JsonClient(process.url, token="wrong").get(task)
        assert caught.value.code == "unauthorized"
        words = ("get", task, "--url", process.url)
        assert typed(*words, env={"ROTA_TOKEN": TOKEN}).exit_code == 0
        refused = typed(*words)
        assert refused.exit_code == 1
        assert "--token" in refused.stderr


def test_token_that_would_break_the_header_is_refused():
    with pytest.raises(InvalidRequest):
        JsonClient(token="x\r\nX-Evil: 1")


def test_stream_gives_events_from_a_seq_on(client):
    task = client.submit("echo", "stream")["taskId"]
    stream = client.stream(after=0, task_id=task)
    kinds = [next(stream)["kind"] for _ in range(4)]
    stream.close()
    assert kinds == ["task_submitted", "task_assigned", "task_started", "task_succeeded"]


def test_stream_that_cannot_be_made_at_first_is_an_error():
    with pytest.raises(ServerUnreachable):
        next(JsonClient("http://127.0.0.1:1").stream(after=0))
