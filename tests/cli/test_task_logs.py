"""`rota logs`, and `rota retry`: what a task said, and another chance for one that failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest
from support.server_process import REPOSITORY

from rota.errors import Conflict, NotFound

LINES = 120


def parsed(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_log_is_printed_oldest_first(rota, client):
    task = client.submit("wait-here", "log1")["taskId"]
    client.add_logs(task, ["first", "second"])
    client.add_logs(task, ["no\x1b[31m"], level="error")
    shown = rota("logs", task)
    assert shown.exit_code == 0
    assert [line.split(" ", 2)[1:] for line in shown.stdout.splitlines()] == [
        ["info", "first"],
        ["info", "second"],
        ["error", "no\\x1b[31m"],
    ]
    lines = parsed(rota("logs", task, "--json").stdout)
    assert [line["message"] for line in lines] == ["first", "second", "no\x1b[31m"]


def test_log_without_lines_says_what_to_type(rota, client):
    task = client.submit("wait-here", "log2")["taskId"]
    result = rota("logs", task)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "rota events --task" in result.stderr


def test_log_of_an_unknown_task_says_what_to_type(rota):
    for words in (("logs", "tsk_none"), ("logs", "tsk_none", "--follow")):
        result = rota(*words)
        assert result.exit_code == 1
        assert "rota list" in result.stderr


def test_followed_log_prints_what_comes_and_ends_with_the_task(server, client):
    task = client.submit("wait-here", "log3")["taskId"]
    client.add_logs(task, ["before"])
    follower = subprocess.Popen(
        [sys.executable, "-m", "rota", "logs", task, "--follow", "--json", "--url", server.url],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"},
    )
    with follower:
        assert json.loads(follower.stdout.readline())["message"] == "before"
        client.add_logs(task, ["after", "that"], level="warning")
        later = [json.loads(follower.stdout.readline()) for _ in range(2)]
        assert [line["message"] for line in later] == ["after", "that"]
        client.cancel(task)
        assert follower.stdout.read() == ""
        assert follower.wait(10) == 0
    assert later == client.logs(task, cursor=1)["lines"]


def test_followed_log_neither_loses_nor_doubles_a_line(client):
    task = client.submit("wait-here", "log4")["taskId"]

    def write():
        for number in range(LINES):
            client.add_logs(task, [str(number)])
        client.cancel(task)

    writer = threading.Thread(target=write)
    writer.start()
    lines = [line["message"] for line in client.follow_logs(task)]
    writer.join()
    assert lines == [str(number) for number in range(LINES)]


def test_followed_log_of_an_ended_task_ends_at_once(rota, client):
    task = client.submit("wait-here", "log5")["taskId"]
    client.add_logs(task, ["last words"])
    client.cancel(task)
    result = rota("logs", task, "--follow")
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1)
    with pytest.raises(Conflict):
        client.add_logs(task, ["from the grave"])


def test_log_is_read_page_by_page(client):
    task = client.submit("wait-here", "log6")["taskId"]
    client.add_logs(task, ["a", "b", "c"])
    page = client.logs(task, limit=2)
    assert [line["message"] for line in page["lines"]] == ["a", "b"]
    rest = client.logs(task, cursor=int(page["nextCursor"]))
    assert [line["message"] for line in rest["lines"]] == ["c"]
    assert "nextCursor" not in rest


def test_progress_is_shown_with_the_task(rota, client):
    task = client.submit("wait-here", "log7")["taskId"]
    client.add_progress(task, {"percent": 40})
    assert '{"percent": 40}' in rota("get", task).stdout
    assert 'progress {"percent": 40}' in rota("list", "--agent", "log7").stdout
    with pytest.raises(NotFound):
        client.add_progress("tsk_none", 1.0)


# -- retry ---------------------------------------------------------------------------------------


def test_retry_gives_a_failed_task_a_new_life(rota, client):
    task = client.wait(client.submit("fail", "again1")["taskId"], 10)["taskId"]
    result = rota("retry", task)
    assert (result.exit_code, result.stdout) == (0, f"{task} ready\n")
    assert client.wait(task, 10)["attempt"] == 2
    answer = json.loads(rota("retry", task, "--json").stdout)
    assert answer == {"taskId": task, "state": "ready"}


def test_retry_of_what_did_not_fail_is_refused(rota, client):
    task = client.wait(client.submit("echo", "again2")["taskId"], 10)["taskId"]
    result = rota("retry", task)
    assert result.exit_code == 1
    assert "only a failed task can be retried" in result.stderr
    assert f"`rota get {task}`" in result.stderr
    unknown = rota("retry", "tsk_none")
    assert unknown.exit_code == 1
    assert "rota list" in unknown.stderr
