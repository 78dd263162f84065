"""`rota batch submit | get | cancel`, and `rota list --batch`."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner
from support.server_process import REPOSITORY

from rota.cli import main
from rota.errors import Conflict, InvalidRequest, NotFound, Unprocessable


def file_with(tmp_path, body):
    path = tmp_path / "batch.json"
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    return path


def of(action: str, count: int = 1, **fields) -> list[dict]:
    return [{"action": action, **fields}] * count


def test_submit_prints_the_id_and_get_shows_the_batch(rota, tmp_path):
    path = file_with(tmp_path, {"agentId": "bat1", "parallelism": 1, "tasks": of("wait-here", 2)})
    result = rota("batch", "submit", path)
    assert result.exit_code == 0
    batch = result.stdout.strip()
    assert batch.startswith("bat_")
    shown = json.loads(rota("batch", "get", batch, "--json").stdout)
    assert (shown["state"], shown["total"], shown["parallelism"]) == ("running", 2, 1)
    listed = json.loads(rota("list", "--batch", batch, "--json").stdout)
    assert listed["count"] == 2
    assert {task["batchId"] for task in listed["tasks"]} == {batch}


def test_batch_is_read_from_standard_input_and_waited_for(server):
    body = json.dumps({"agentId": "bat2", "tasks": of("echo", 3)})
    words = ["batch", "submit", "-", "--wait", "--json", "--url", server.url]
    result = CliRunner().invoke(main, words, input=body)
    assert result.exit_code == 0
    batch = json.loads(result.stdout)
    assert (batch["state"], batch["counts"]["succeeded"], batch["progress"]) == ("finished", 3, 1.0)


def test_wait_for_a_batch_of_which_one_fails_is_a_failure(rota, tmp_path):
    tasks = [*of("echo"), {"action": "fail", "ref": "bad"}, *of("echo", dependsOn=["ref:bad"])]
    result = rota(
        "batch", "submit", file_with(tmp_path, {"agentId": "b", "tasks": tasks}), "--wait"
    )
    assert result.exit_code == 1
    words = [line.split() for line in result.stdout.splitlines()]
    assert ["progress", "100%"] in words
    assert all([state, "1"] in words for state in ("succeeded", "failed", "cancelled"))
    assert "--state failed" in result.stderr


def test_wait_that_takes_too_long_says_what_to_type(rota, tmp_path):
    path = file_with(tmp_path, {"agentId": "bat3", "tasks": of("wait-here")})
    batch = rota("batch", "submit", path).stdout.strip()
    result = rota("batch", "get", batch, "--wait=0.01")
    assert result.exit_code == 1
    assert f"rota batch get {batch}" in result.stderr


def test_progress_is_drawn_on_a_terminal(server, client):
    batch = client.submit_batch(of("echo", 5), agent="bat4")["batchId"]
    ours, theirs = pty.openpty()
    drawn: list[bytes] = []

    def read():
        while True:
            try:
                drawn.append(os.read(ours, 4096))
            except OSError:  # how a terminal says that its other end is closed
                return

    reader = threading.Thread(target=read)
    reader.start()
    done = subprocess.run(
        [sys.executable, "-m", "rota", "batch", "get", batch, "--wait", "--url", server.url],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    reader.join()
    os.close(ours)
    bar = b"".join(drawn).decode()
    assert f"batch {batch}" in bar
    assert "5/5" in bar
    assert (done.returncode, "finished" in done.stdout) == (0, True)


def test_long_batch_is_shown_in_part_with_how_to_see_the_rest(rota, tmp_path):
    path = file_with(tmp_path, {"agentId": "bat5", "tasks": of("wait-here", 60)})
    batch = rota("batch", "submit", path).stdout.strip()
    shown = rota("batch", "get", batch)
    assert shown.stdout.count("tsk_") == 50
    assert f"10 more: rota list --all --batch {batch}" in shown.stderr
    assert rota("batch", "cancel", batch).stdout == f"{batch} 60 cancelled\n"


def test_cancel_ends_what_has_not_ended_and_cannot_do_it_twice(rota, client):
    batch = client.submit_batch(of("wait-here", 2), agent="bat6")["batchId"]
    answer = json.loads(rota("batch", "cancel", batch, "--reason", "enough", "--json").stdout)
    assert answer == {"batchId": batch, "cancelled": 2}
    tasks = client.tasks(batch_id=batch)["tasks"]
    assert {task["error"]["message"] for task in tasks} == {"enough"}
    again = rota("batch", "cancel", batch)
    assert again.exit_code == 1
    assert f"`rota batch get {batch}`" in again.stderr


@pytest.mark.parametrize("command", ["get", "cancel"])
def test_unknown_batch_says_what_to_type(rota, command):
    result = rota("batch", command, "bat_none")
    assert result.exit_code == 1
    assert "error: batch not found" in result.stderr
    assert "rota batch submit" in result.stderr


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{", "is not JSON"),
        ([], "with a list of `tasks`"),
        ({"tasks": "abc"}, "with a list of `tasks`"),
        ({"tasks": of("echo")}, "tasks.0.agentId"),
        ({"tasks": of("echo", agentId="b"), "self": 1}, "unknown field 'self'"),
        ({"tasks": of("echo", agentId="b", dependsOn=[7])}, "there is no item 7"),
    ],
)
def test_file_that_is_no_batch_is_refused(rota, tmp_path, body, said):
    result = rota("batch", "submit", file_with(tmp_path, body))
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stdout == ""


def test_file_that_is_not_there_is_wrong_usage(rota, tmp_path):
    assert rota("batch", "submit", tmp_path / "none.json").exit_code == 2


def test_idempotency_key_makes_one_batch(rota, tmp_path):
    path = file_with(
        tmp_path, {"agentId": "bat7", "tasks": of("echo"), "idempotencyKey": "bat-key"}
    )
    first, again = rota("batch", "submit", path), rota("batch", "submit", path)
    assert first.stdout == again.stdout
    assert "stands for this batch already" in again.stderr


# -- the client ----------------------------------------------------------------------------------


def test_client_waits_for_a_batch_and_is_told_how_far_it_is(client):
    told = []
    batch = client.submit_batch(of("echo", 4), agent="bat8")["batchId"]
    shown = client.wait_batch(batch, 30, on_progress=lambda *counts: told.append(counts))
    assert shown["state"] == "finished"
    assert told[-1] == (4, 4)
    assert told == sorted(told)


def test_client_raises_what_the_server_refuses(client):
    with pytest.raises(NotFound):
        client.get_batch("bat_/../none")
    with pytest.raises(InvalidRequest):
        client.submit_batch([], agent="bat9")
    done = client.submit_batch(of("echo"), agent="bat9", idempotency_key="bat-key-9")["batchId"]
    client.wait_batch(done, 30)
    with pytest.raises(Conflict):
        client.cancel_batch(done)
    with pytest.raises(Unprocessable) as caught:
        client.submit_batch(of("echo", 2), agent="bat9", idempotency_key="bat-key-9")
    assert caught.value.code == "idempotency_conflict"
