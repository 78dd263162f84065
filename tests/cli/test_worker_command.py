"""`rota worker`: finds a worker by where it is written, and says what is wrong otherwise."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from support.worker_process import WorkerProcess

from rota.cli.worker import load
from rota.errors import ConfigError

SOURCE = """
import asyncio

from rota.client import Worker

worker = Worker()
other = Worker(concurrency=2)
number = 7


@worker.task("cli_greet")
async def greet(name="world"):
    return f"hello {name}"


@worker.task("cli_slow")
async def slow():
    await asyncio.sleep(60)


@worker.task("cli_huge")
async def huge():
    return "x" * (5 << 20)


@worker.task("cli_fail")
async def fail(secret):
    raise ValueError("it\\nforges a line " + "x" * 1000)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "good_worker.py").write_text(SOURCE)
    (tmp_path / "broken_worker.py").write_text("1 / 0\n")
    (tmp_path / "needy_worker.py").write_text("import not_to_be_found\n")
    (tmp_path / "bare_worker.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_a_worker_is_found_by_module_and_name(here):
    assert load("good_worker").concurrency == 8
    assert load("good_worker:other").concurrency == 2


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("good_worker.py", "there is no module good_worker.py"),
        ("some/where:worker", "does not name a module"),
        ("no_such_worker", "there is no module no_such_worker"),
        ("broken_worker", "ZeroDivisionError"),
        ("needy_worker", "No module named 'not_to_be_found'"),
        ("good_worker:missing", "missing of good_worker is not there"),
        ("good_worker:number", "number of good_worker is not a Worker"),
        ("bare_worker", "worker of bare_worker is not there"),
    ],
)
def test_what_is_wrong_is_said(here, typed, target, says):
    with pytest.raises(ConfigError) as caught:
        load(target)
    assert says in caught.value.message or target == "good_worker.py"
    result = typed("worker", target)
    assert result.exit_code == 1


def test_it_runs_until_it_is_told_to_stop(here, server, client):
    with WorkerProcess(here, "good_worker", server.url, "--concurrency", "2") as worker:
        task = client.submit("cli_greet", "cli-worker", params={"name": "bob"})["taskId"]
        assert client.wait(task, 60)["result"] == "hello bob"
        assert worker.stop(signal.SIGINT) == 0
    served = re.escape("takes cli_fail, cli_greet, cli_huge, cli_slow (2 at once)")
    assert re.match(rf"^\S+Z info rota.worker: \S+ {served}", worker.output())


def test_a_failed_attempt_is_one_warning_in_both_logs(here, server, client):
    """It names task, type, agent, attempt and error, on one line; the params are not in it."""
    args = ("--log-level", "warning", "--json-logs")
    with WorkerProcess(here, "good_worker", server.url, *args) as worker:
        params = {"secret": "hunter2"}
        retry = {"max_attempts": 2, "base_s": 0}
        task = client.submit("cli_fail", "cli-worker", params=params, retry=retry)["taskId"]
        assert client.wait(task, 60)["error"]["code"] == "ValueError"
        assert worker.stop() == 0
    mine = [json.loads(line) for line in worker.output().splitlines()]
    begins = [f"attempt {n} of task {task} (cli_fail of cli-worker) failed" for n in (1, 2)]
    error = ("ValueError: it\nforges a line " + "x" * 1000)[:500]
    said = [f"{begin} (ValueError): {error}" for begin in begins]
    assert [line["message"] for line in mine] == said
    assert {(line["level"], line["logger"]) for line in mine} == {("warning", "rota.worker")}
    theirs = [line for line in server.output().splitlines() if task in line]
    assert len(theirs) == 2
    assert " warning rota.attempts: " + begins[0] + " at worker " in theirs[0]
    assert theirs[0].endswith("x; it is tried again")
    assert theirs[1].endswith("x; the task has failed")
    assert "hunter2" not in worker.output() + server.output()


def test_an_attempt_that_the_server_ends_is_the_same_warning(here, server, client):
    """The server ends one by its timeout or deadline, and refuses a result that is too large."""
    cases = [
        ("cli_slow", {"deadline": datetime.now(UTC) + timedelta(seconds=10)}, "deadline_exceeded"),
        ("cli_slow", {"timeout_s": 1}, "timeout"),
        ("cli_huge", {}, "bad_result"),
    ]
    ids = []
    with WorkerProcess(here, "good_worker", server.url, "--quiet", "--json-logs") as worker:
        for action, said, code in cases:
            ids.append(client.submit(action, "cli-worker", **said)["taskId"])
            assert client.wait(ids[-1], 60)["error"]["code"] == code
        assert worker.stop() == 0
    told = [json.loads(line)["message"] for line in worker.output().splitlines()]
    assert len(told) == len(cases)
    for task, (action, _, code), line in zip(ids, cases, told, strict=True):
        assert line.startswith(
            f"attempt 1 of task {task} ({action} of cli-worker) failed ({code}): "
        )


def test_a_worker_that_reloads_ends_at_sigterm_without_a_warning(here, server, client):
    with WorkerProcess(here, "good_worker", server.url, "--reload") as worker:
        assert client.wait(client.submit("cli_greet", "cli-worker")["taskId"], 60)["result"]
        assert worker.stop() == 0
    assert "KeyboardInterrupt" not in worker.output()
    assert "0 running, 0 given back" in worker.output()


def test_what_ends_a_worker_with_json_logs_is_a_log_line(here, typed):
    command = [sys.executable, "-m", "rota", "worker", "no_such_worker", "--json-logs"]
    ended = subprocess.run(
        command, cwd=here, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "there is no module no_such_worker" in json.loads(line)["message"]
