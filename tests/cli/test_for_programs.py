"""What programs and impatient people meet: errors as JSON, durations, Ctrl-C, the environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rota.client.sync_client import JsonClient
from rota.errors import InvalidRequest

REPOSITORY = Path(__file__).parents[2]


def test_an_error_is_json_where_json_was_asked_for(rota):
    answer = rota("get", "tsk_nobody", "--json")
    said = json.loads(answer.stderr)
    assert answer.exit_code == 1
    assert (said["code"], said["retryable"]) == ("not_found", False)


def test_a_server_that_is_not_there_is_json_too(typed):
    answer = typed("stats", "--json", "--url", "http://127.0.0.1:1")
    assert answer.exit_code == 1
    assert "code" in json.loads(answer.stderr)


@pytest.mark.parametrize("span", ["5", "5s", "5000ms"])
def test_a_wait_is_a_duration_or_a_number_of_seconds(rota, span):
    assert rota("submit", "echo", "--agent", "w", "--wait", span).exit_code == 0


def _pressed_until_it_ends(waiting: subprocess.Popen[str]) -> str:
    """Press Ctrl-C as a person does; give what the command complained.

    One that comes just before a blocking read is only seen when that read ends.
    """
    for _ in range(10):
        waiting.send_signal(signal.SIGINT)
        try:
            return waiting.communicate(timeout=5)[1]
        except subprocess.TimeoutExpired:
            continue
    pytest.fail("it does not end")


def test_ctrl_c_while_waiting_leaves_with_130_and_without_a_fuss(server):
    command = [sys.executable, "-m", "rota", "submit", "sleep", "--agent", "ctrl-c", "--param"]
    waiting = subprocess.Popen(
        [*command, "ms=60000", "--wait", "50", "--url", server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    client = JsonClient(server.url)
    try:
        for event in client.stream(after=0, kinds=["task_started"], agent="ctrl-c"):
            assert event["kind"] == "task_started"
            break
        complaint = _pressed_until_it_ends(waiting)
    finally:
        waiting.kill()
        waiting.communicate()
    assert waiting.returncode == 130
    assert "Aborted" not in complaint
    assert "Traceback" not in complaint


def test_a_client_takes_its_server_from_the_environment(server, monkeypatch):
    monkeypatch.setenv("ROTA_URL", server.url)
    assert JsonClient().url == server.url
    monkeypatch.setenv("ROTA_URL", "nonsense")
    with pytest.raises(InvalidRequest):
        JsonClient()
    assert JsonClient("http://127.0.0.1:1").url == "http://127.0.0.1:1"


def test_an_action_that_nobody_runs_is_told_of_at_once(rota):
    answer = rota("submit", "ehco", "--agent", "typo")
    assert answer.exit_code == 0
    assert answer.stdout.startswith("tsk_")
    assert "is 'ehco' the action you meant?" in answer.stderr
    assert rota("submit", "echo", "--agent", "typo").stderr == ""
