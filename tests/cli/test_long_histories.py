"""Histories, lists and logs of more than a page are given to their end."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import pytest
from support.server_process import ServerProcess

from rota.client.sync_client import JsonClient

TASKS = 1050
REPORTS = 1000


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A server with a task that has a long history, and more tasks than fit on a page."""
    config = {"scheduler": {"maxPerAgent": 5000, "maxQueueSize": 5000}}
    with ServerProcess(tmp_path_factory.mktemp("long") / "data", config) as server:
        client = JsonClient(server.url)
        task = client.submit("waits", "chatty")["taskId"]
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
        for path, body, count in (
            (f"/v1/tasks/{task}/progress", {"progress": 1}, REPORTS),
            (f"/v1/tasks/{task}/logs", {"lines": ["a", "b"] * 25}, 20),
        ):
            for _ in range(count):
                connection.request(
                    "POST", path, json.dumps(body), {"Content-Type": "application/json"}
                )
                assert connection.getresponse().read()
        connection.close()
        items = [{"agent": "many", "action": "waits"}] * 525
        for _ in range(2):
            client.submit_batch(items)
        yield server, client, task


def test_the_client_goes_on_to_the_end(long):
    _, client, task = long
    history = client.task_events(task)
    assert len(history) == 1 + REPORTS + 20
    assert list(client.iter_events(task_id=task)) == history
    assert [event["seq"] for event in client.iter_events()] == list(
        range(1, client.head()["seq"] + 1)
    )
    assert list(client.iter_task_events(task, after=history[1010]["seq"])) == history[1011:]
    tasks = list(client.iter_tasks(agent="many"))
    assert len({each["taskId"] for each in tasks}) == len(tasks) == TASKS
    assert [line["message"] for line in client.iter_logs(task)][:999] == (["a", "b"] * 500)[:999]


def test_the_commands_go_on_to_the_end(long, typed):
    server, client, task = long
    env = {"ROTA_URL": server.url, "ROTA_TOKEN": ""}
    lines = typed("events", "--task", task, "--limit", 5000, "--json", env=env).stdout.splitlines()
    assert len(lines) == 1 + REPORTS + 20
    lines = typed("events", "--limit", 5000, "--json", env=env).stdout.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, client.head()["seq"] + 1))
    lines = typed("events", "--kind", "task_submitted", "--limit", 1040, "--json", env=env).stdout
    assert len(lines.splitlines()) == 1040
    lines = typed("events", "--agent", "many", "--limit", 900, "--json", env=env).stdout
    assert len(lines.splitlines()) == 900
    assert json.loads(typed("list", "--all", "--json", env=env).stdout)["count"] == TASKS + 1
    assert len(typed("logs", task, env=env).stdout.splitlines()) == 1000
