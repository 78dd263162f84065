"""`rota agents` and `rota limits`: who has tasks, and how many may run at once."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from support.server_process import ServerProcess

from rota.cli import main


def test_agents_are_listed_with_what_they_have(rota, client):
    client.submit("waits-for-nobody", "agents-1")
    client.submit("waits-for-nobody", "agents-1")
    rota("pause", "--agent", "agents-2", "--reason", "the site is down")
    shown = rota("agents", "--all").stdout.splitlines()
    rota("resume", "--agent", "agents-2")  # the server is shared
    rows = {line.split()[0]: line.split() for line in shown}
    assert rows["agents-1"][1:3] == ["2", "0"]
    assert rows["agents-2"][3:] == ["yes:", "the", "site", "is", "down"]
    found = json.loads(rota("agents", "--all", "--json").stdout)
    assert {"agentId": "agents-1", "waiting": 2}.items() <= next(
        agent for agent in found["agents"] if agent["agentId"] == "agents-1"
    ).items()


def test_agents_are_narrowed_down_to_a_state(rota, client):
    client.submit("waits-for-nobody", "agents-3")
    rota("pause", "--agent", "agents-4")
    shown = {
        state: rota("agents", "--all", "--state", state).stdout for state in ("waiting", "paused")
    }
    rota("resume", "--agent", "agents-4")
    assert ("agents-3" in shown["waiting"], "agents-4" in shown["waiting"]) == (True, False)
    assert ("agents-3" in shown["paused"], "agents-4" in shown["paused"]) == (False, True)


def test_agents_go_on_over_pages(rota, monkeypatch):
    pages = {
        None: {"agents": [{"agentId": "a", "waiting": 1, "inflight": 0, "paused": False}], "nextCursor": "c"},
        "c": {"agents": [{"agentId": "b", "waiting": 0, "inflight": 2, "paused": False}]},
    }  # fmt: skip
    monkeypatch.setattr(
        "rota.client.sync_client.JsonClient.agents",
        lambda self, *, state, cursor, limit: pages[cursor],
    )
    one = rota("agents")
    assert ("a  " in one.stdout, "b  " in one.stdout) == (True, False)
    assert "--cursor c" in one.stderr
    every = rota("agents", "--all")
    assert [line.split()[0] for line in every.stdout.splitlines()] == ["agent", "a", "b"]
    assert every.stderr == ""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    with ServerProcess(tmp_path_factory.mktemp("limits") / "data") as process:
        yield process


@pytest.fixture
def limits(typed, own):
    return lambda *words: typed("limits", *words, env={"ROTA_URL": own.url, "ROTA_TOKEN": ""})


def test_limits_are_shown_with_what_they_mean(limits):
    shown = limits().stdout
    assert "maxInflight" in shown
    assert "tasks in flight" in shown
    assert "strategy" not in shown
    assert json.loads(limits("--json").stdout)["maxQueueSize"] == 100_000


def test_limits_are_set_and_what_changed_is_said(limits):
    result = limits("set", "maxInflight=40", "maxPerAgent=10000")
    assert result.exit_code == 0
    assert "maxInflight: 1000 -> 40" in result.stdout
    assert "maxPerAgent: 10000, as it was" in result.stdout
    assert json.loads(limits("--json").stdout)["maxInflight"] == 40
    again = limits("set", "maxInflight=1000", "--json")
    assert json.loads(again.stdout) == {"changed": {"maxInflight": {"from": 40, "to": 1000}}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("maxInflght=40", "Did you mean maxInflight"),
        ("maxInflight", "such as maxInflight=40"),
        ("maxInflight=0", "whole number above 0"),
        ("maxInflight=many", "whole number above 0"),
        ("strategy=1", "there is no limit 'strategy'"),
        ("nonsense=1", "There are maxQueueSize"),
    ],
)
def test_a_limit_that_cannot_be_set_is_wrong_usage(limits, given, said):
    result = limits("set", given)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_a_limit_that_is_too_high_is_refused_by_the_server(limits):
    result = limits("set", "maxInflight=999999999999")
    assert result.exit_code == 1
    assert "scheduler.maxInflight" in result.stderr


def test_the_server_is_named_after_set(limits):
    result = limits("--url", "http://127.0.0.1:1", "set", "maxInflight=40")
    assert result.exit_code == 2
    assert "write --url after set" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lst"], "Did you mean list"),
        (["sumbit"], "Did you mean submit?"),
        (["batch", "sumbit"], "Did you mean submit?"),
        (["limits", "sett"], "Did you mean set?"),
        (["list", "--agnet", "x"], "--agent"),
    ],
)
def test_what_was_mistyped_is_guessed(typed, words, said):
    result = typed(*words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_what_is_like_nothing_is_not_guessed(typed):
    result = typed("frobnicate")
    assert result.exit_code == 2
    assert "Did you mean" not in result.stderr


def test_help_says_how_the_server_is_found(typed):
    shown = typed("--help").output
    assert "ROTA_URL" in shown
    assert "ROTA_TOKEN" in shown


def completed(**env):
    """Give what a shell is told that asks for a completion."""
    return CliRunner().invoke(main, [], env=env, prog_name="rota").output


def test_shells_complete_commands():
    assert "_rota_completion" in completed(_ROTA_COMPLETE="zsh_source")
    found = completed(_ROTA_COMPLETE="bash_complete", COMP_WORDS="rota li", COMP_CWORD="1")
    assert set(found.split()) == {"plain,list", "plain,limits"}
