"""`rota submit | get | list | cancel` against a real server; test_submit.py has submit's options."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from click.shell_completion import ShellComplete

from rota.cli import main


def test_submit_prints_the_id_of_the_new_task(rota):
    result = rota("submit", "echo", "--agent", "s1")
    assert result.exit_code == 0
    assert result.stdout.startswith("tsk_")
    task = json.loads(rota("get", result.stdout.strip(), "--json").stdout)
    assert task["agentId"] == "s1"


def test_submit_and_wait_shows_the_result(rota):
    words = ("--param", "text=hello", "--param", "n=3", "--params", '{"n": 1, "deep": [1]}')
    result = rota("submit", "echo", "--agent", "s2", *words, "--json", "--wait")
    assert result.exit_code == 0
    echoed = json.loads(result.stdout)["result"]["echo"]
    assert echoed == {"text": "hello", "n": 3, "deep": [1]}


def test_submit_and_wait_for_a_failure_is_a_failure(rota):
    result = rota("submit", "fail", "--agent", "s3", "--param", "message=no\x1b[31m", "--wait")
    assert result.exit_code == 1
    assert "failed" in result.stdout
    assert "\x1b" not in result.stdout
    assert "no\\u001b[31m" in result.stdout


def test_get_can_wait_for_the_end(rota):
    sleeping = rota("submit", "sleep", "--agent", "g1", "--param", "ms=50").stdout.strip()
    result = rota("get", sleeping, "--wait", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["state"] == "succeeded"
    failing = rota("submit", "fail", "--agent", "g1").stdout.strip()
    assert rota("get", failing, "--wait").exit_code == 1


def test_submit_gives_up_waiting_in_time_and_says_what_to_type(rota):
    result = rota("submit", "nobody-does-this", "--agent", "s4", "--wait", "0.01")
    assert result.exit_code == 1
    assert "rota get tsk_" in result.stderr


def test_submit_passes_every_field_on(rota):
    words = ("--tab", "t1", "--ref", "e5", "--priority", "high", "--timeout-ms", "5000")
    more = ("--deadline", "+5m", "--json", "--wait=10")
    task = json.loads(rota("submit", "echo", "--agent", "s5", *words, *more).stdout)
    assert (task["tabId"], task["ref"], task["priority"]) == ("t1", "e5", 1)
    assert task["timeoutMs"] == 5000
    ahead = datetime.fromisoformat(task["deadline"]) - datetime.fromisoformat(task["createdAt"])
    assert 290 < ahead.total_seconds() <= 300


@pytest.mark.parametrize(
    "words",
    [
        ("echo",),
        ("echo", "--agent", "a", "--param", "novalue"),
        ("echo", "--agent", "a", "--params", "[1]"),
        ("echo", "--agent", "a", "--params", "{"),
        ("echo", "--agent", "a", "--deadline", "tomorrow"),
        ("--wait", "echo", "--agent", "a"),
    ],
)
def test_wrong_usage_is_exit_code_2(rota, words):
    assert rota("submit", *words).exit_code == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--priority", "soon"), "priority"),
        (("--deadline", "2001-01-01T00:00:00Z"), "deadline"),
        (("--callback", "http://127.0.0.1:1/"), "error:"),
    ],
)
def test_what_the_server_refuses_is_said_on_stderr(rota, words, named):
    result = rota("submit", "echo", "--agent", "s6", *words)
    assert result.exit_code == 1
    assert named in result.stderr
    assert result.stdout == ""


def test_get_of_an_unknown_task_says_what_to_type(rota):
    result = rota("get", "tsk_00000000")
    assert result.exit_code == 1
    assert "error: task not found" in result.stderr
    assert "rota list" in result.stderr


def test_get_shows_a_task_as_a_table(rota):
    task = rota("submit", "echo", "--agent", "g1", "--wait", "--json")
    shown = rota("get", json.loads(task.stdout)["taskId"])
    assert "agentId" in shown.stdout
    assert "succeeded" in shown.stdout


def test_list_filters_and_pages(rota):
    made = [rota("submit", "wait-here", "--agent", "l1").stdout.strip() for _ in range(3)]
    page = json.loads(rota("list", "--agent", "l1", "--limit", "2", "--json").stdout)
    assert [task["taskId"] for task in page["tasks"]] == made[:0:-1]
    words = ("--agent", "l1", "--cursor", page["nextCursor"], "--json")
    rest = json.loads(rota("list", *words).stdout)
    assert [task["taskId"] for task in rest["tasks"]] == made[:1]
    whole = json.loads(rota("list", "--agent", "l1", "--all", "--json").stdout)
    assert whole["count"] == 3
    assert "nextCursor" not in whole
    states = ("--state", "succeeded", "--state", "failed")
    assert json.loads(rota("list", "--agent", "l1", *states, "--json").stdout)["count"] == 0
    for option in ("--action", "--type"):
        assert json.loads(rota("list", option, "wait-here", "--json").stdout)["count"] >= 3


def test_list_prints_a_table_and_how_to_go_on(rota):
    for _ in range(2):
        rota("submit", "echo", "--agent", "l2")
    result = rota("list", "--agent", "l2", "--limit", "1")
    assert result.stdout.splitlines()[0].split()[:4] == ["task", "agent", "action", "state"]
    assert "--cursor" in result.stderr


def test_list_of_an_unknown_state_is_refused(rota):
    result = rota("list", "--state", "sleepy")
    assert result.exit_code == 2
    assert "'sleepy' is not one of 'blocked', 'scheduled', 'ready'" in result.stderr


@pytest.mark.parametrize(
    ("words", "begun", "whole"),
    [
        (["list", "--state"], "su", "succeeded"),
        (["workflow", "list", "--state"], "esc", "escalated"),
        (["schedule", "list", "--state"], "pa", "paused"),
        (["schedule", "list", "--makes"], "wo", "workflow"),
    ],
)
def test_tab_completes_the_words_of_a_filter(words, begun, whole):
    completing = ShellComplete(main, {}, "rota", "_ROTA_COMPLETE")
    found = completing.get_completions(words, begun)
    assert [each.value for each in found] == [whole]


def test_cancel_ends_a_task_and_cannot_end_it_twice(rota):
    task = rota("submit", "wait-here", "--agent", "c1").stdout.strip()
    result = rota("cancel", task, "--reason", "no longer needed")
    assert (result.exit_code, result.stdout) == (0, f"{task} cancelled\n")
    shown = json.loads(rota("get", task, "--json").stdout)
    assert shown["error"]["message"] == "no longer needed"
    again = rota("cancel", task)
    assert again.exit_code == 1
    assert "already cancelled" in again.stderr


def test_unreachable_server_says_what_to_type(typed):
    result = typed("get", "tsk_1", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "cannot reach a rota server at http://127.0.0.1:1" in result.stderr
    assert "rota serve" in result.stderr


@pytest.mark.parametrize("url", ["127.0.0.1:9867", "ftp://x", "http://", "http://x:99999"])
def test_address_that_is_none_is_refused(typed, url):
    result = typed("get", "tsk_1", "--url", url)
    assert result.exit_code == 1
    assert "http://127.0.0.1:9867" in result.stderr


def test_get_shows_a_task_as_it_was(rota):
    task = rota("submit", "echo", "--agent", "g2", "--wait", "--json").stdout
    task = json.loads(task)["taskId"]
    told = [
        json.loads(line)
        for line in rota("events", "--task", task, "--json").stdout.split("\n")
        if line
    ]
    states = [
        json.loads(rota("get", task, "--at", str(each["seq"]), "--json").stdout)["state"]
        for each in told
    ]
    assert states == ["ready", "assigned", "running", "succeeded"]
    now = json.loads(rota("get", task, "--json").stdout)
    assert (
        json.loads(rota("get", task, "--at", now["completedAt"], "--json").stdout)["taskId"] == task
    )
    before = rota("get", task, "--at", "2020-01-01T00:00:00Z")
    assert before.exit_code == 1
    assert "none yet" in before.stderr
    assert rota("get", task, "--at", "yesterday").exit_code == 1
    assert rota("get", task, "--at", "1", "--wait").exit_code == 2
