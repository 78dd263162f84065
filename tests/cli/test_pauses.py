"""`rota pause | resume`: an agent, a type, everything; and `rota stats`, which shows it."""

from __future__ import annotations

import json

import pytest
from support.server_process import ServerProcess

from rota.client.sync_client import JsonClient
from rota.errors import InvalidRequest


def test_paused_agent_is_held_back_until_it_is_resumed(rota, client):
    result = rota("pause", "--agent", "pause 1", "--reason", "the site is down")
    assert (result.exit_code, result.stdout) == (0, "agent pause 1 paused\n")
    assert "`rota resume --agent 'pause 1'`" in result.stderr
    task = client.submit("echo", "pause 1")["taskId"]
    assert client.get(task)["state"] == "ready"
    (agent,) = [row for row in client.agents()["agents"] if row["agentId"] == "pause 1"]
    assert (agent["paused"], agent["pauseReason"]) == (True, "the site is down")
    assert "paused agents: pause 1" in rota("stats").stdout
    assert rota("resume", "--agent", "pause 1").stdout == "agent pause 1 resumed\n"
    assert client.wait(task, 10)["state"] == "succeeded"


def test_paused_type_is_held_back_and_others_are_not(rota, client):
    answer = json.loads(rota("pause", "--type", "sleep", "--json").stdout)
    assert answer == {"type": "sleep", "paused": True}
    held = client.submit("sleep", "pause2", params={"ms": 0})["taskId"]
    free = client.submit("echo", "pause2")["taskId"]
    assert client.wait(free, 10)["state"] == "succeeded"
    assert client.get(held)["state"] == "ready"
    assert client.scheduler()["pausedTypes"] == ["sleep"]
    assert rota("resume", "--type", "sleep").stdout == "type sleep resumed\n"
    assert client.wait(held, 10)["state"] == "succeeded"


def test_server_started_paused_dispatches_nothing_until_it_is_resumed(typed, tmp_path):
    with ServerProcess(tmp_path / "data", args=("--paused",)) as process:
        client = JsonClient(process.url)
        task = client.submit("echo", "a")["taskId"]
        assert client.get(task)["state"] == "ready"
        env = {"ROTA_URL": process.url}
        assert "everything is paused" in typed("stats", env=env).stdout
        assert typed("resume", env=env).stdout == "everything resumed\n"
        assert client.wait(task, 10)["state"] == "succeeded"
        paused = typed("pause", "--reason", "upkeep", env=env)
        assert paused.stdout == "everything paused\n"
        assert "`rota resume`" in paused.stderr
        assert "everything is paused: upkeep" in typed("stats", env=env).stdout
        scheduler = json.loads(typed("stats", "--json", env=env).stdout)["scheduler"]
        assert scheduler["paused"] is True


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_agent_and_type_at_once_is_wrong_usage(rota, client, command):
    result = rota(command, "--agent", "a", "--type", "t")
    assert result.exit_code == 2
    assert "--agent or --type" in result.stderr
    with pytest.raises(InvalidRequest):
        getattr(client, command)(agent="a", action="t")
