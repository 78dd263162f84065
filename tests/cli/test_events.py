"""`rota events`: pages, filters, and a history that is followed across a restart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

from support.server_process import REPOSITORY, ServerProcess

from rota.client.sync_client import JsonClient
from rota.clock import rfc3339


def parsed(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_history_starts_with_the_servers_start(rota):
    (first,) = parsed(rota("events", "--limit", "1", "--json").stdout)
    assert (first["seq"], first["kind"]) == (1, "server_started")
    assert rota("events", "--limit", "1").stdout.split()[::2][:2] == ["1", "server_started"]


def test_history_of_one_task(rota, client):
    task = client.wait(client.submit("echo", "e1")["taskId"], 10)["taskId"]
    kinds = [event["kind"] for event in parsed(rota("events", "--task", task, "--json").stdout)]
    assert kinds == ["task_submitted", "task_assigned", "task_started", "task_succeeded"]
    words = ("--task", task, "--kind", "task_started", "--json")
    assert len(parsed(rota("events", *words).stdout)) == 1
    assert rota("events", "--task", "tsk_none").exit_code == 1


def test_history_is_filtered_by_kind_and_agent(rota, client):
    for _ in range(3):
        client.submit("wait-here", "e2")
    words = ("--kind", "task_submitted", "--agent", "e2", "--json")
    assert len(parsed(rota("events", *words).stdout)) == 3
    assert len(parsed(rota("events", *words, "--limit", "2").stdout)) == 2


def test_history_can_be_counted_from_its_end(rota, client):
    client.submit("wait-here", "e3")
    head = client.head()["seq"]
    last = parsed(rota("events", "--after", "-2", "--json").stdout)
    assert [event["seq"] for event in last][:2] == [head - 1, head]


def test_unknown_kind_is_refused(rota):
    result = rota("events", "--kind", "task_danced")
    assert result.exit_code == 1
    assert "unknown kind 'task_danced'" in result.stderr


def test_followed_history_goes_on_after_a_restart(tmp_path):
    with ServerProcess(tmp_path / "data") as process:
        client = JsonClient(process.url)
        words = ("events", "--follow", "--after", "0", "--kind", "task_submitted", "--json")
        follower = subprocess.Popen(
            [sys.executable, "-m", "rota", *words, "--limit", "2", "--url", process.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"},
        )
        with follower:
            first = client.submit("wait-here", "f")["taskId"]
            assert json.loads(follower.stdout.readline())["task"] == first
            process.kill()
            process.args = ("--port", str(process.port))
            process.start()
            second = client.submit("wait-here", "f")["taskId"]
            assert json.loads(follower.stdout.readline())["task"] == second
            assert follower.wait(10) == 0
            assert "connecting again" in follower.stderr.read()


def test_moments_are_shown_as_moments(rota, client):
    retry = {"base_s": 3600, "max_s": 3600}
    ahead = rfc3339(int(time.time() + 86_400) * 1_000_000)
    task = client.submit("fail", "moments", deadline=ahead, retry=retry)["taskId"]
    until_events(client, task, "attempt_failed")
    shown = rota("events", "--task", task).stdout
    assert f'"deadline":"{ahead}"' in shown
    assert re.search(r'"next_at":"20\d\d-\d\d-\d\dT[\d:.]+Z"', shown)
    told = parsed(rota("events", "--task", task, "--json").stdout)
    raw = client.task_events(task)
    assert [each["at"] for each in told] == [rfc3339(each["at"]) for each in raw]
    assert told[0]["data"]["deadline"] == ahead
    assert [each["seq"] for each in told] == [each["seq"] for each in raw]
    client.cancel(task)


def until_events(client, task, kind):
    """Wait until a task's history has such an event."""
    for _ in range(1000):
        if kind in [event["kind"] for event in client.task_events(task)]:
            return
        time.sleep(0.01)
    raise AssertionError(kind)
