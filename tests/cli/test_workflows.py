"""`rota workflow submit | list | get | cancel | pause | resume | close`, and `rota submit --workflow`."""

from __future__ import annotations

import json

import pytest
from support.http_server import until


@pytest.fixture
def flow_file(tmp_path):
    def write(body):
        path = tmp_path / "flow.json"
        path.write_text(body if isinstance(body, str) else json.dumps(body))
        return path

    return write


@pytest.fixture
def submit(rota, flow_file):
    """Submit a workflow that must be taken; give its id."""

    def run(*tasks, **fields):
        result = rota("workflow", "submit", flow_file({"tasks": list(tasks), **fields}))
        assert result.exit_code == 0, result.stderr
        return result.stdout.strip()

    return run


def of(agent, action="echo", **fields):
    return {"agentId": agent, "action": action, **fields}


def over(client, flow):
    return until(lambda: view if "completedAt" in (view := client.get_workflow(flow)) else None)


def words(result):
    return [line.split() for line in result.stdout.splitlines()]


def test_submit_prints_the_id_and_get_shows_the_whole(rota, client, submit):
    flow = submit(of("wf1", ref="a"), of("wf1", dependsOn=["ref:a"]), name="cli-nightly")
    assert flow.startswith("wfl_")
    view = over(client, flow)
    lines = words(rota("workflow", "get", flow))
    assert ["state", "completed"] in lines
    assert ["progress", "100%"] in lines
    assert ["succeeded", "2"] in lines
    assert [view["tasks"][0]["taskId"], "wf1", "echo", "succeeded"] in lines
    found = json.loads(rota("workflow", "get", flow, "--json").stdout)
    assert found["edges"] == [
        {"from": found["tasks"][0]["taskId"], "to": found["tasks"][1]["taskId"]}
    ]


def test_list_narrows_down_and_goes_on_over_pages(rota, submit):
    first = submit(of("wf2", "waits"), name="cli-list")
    second = submit(of("wf2", "waits"), name="cli-list")
    shown = rota("workflow", "list", "--name", "cli-list", "--state", "running")
    assert [line[0] for line in words(shown)[1:]] == [second, first]
    page = rota("workflow", "list", "--name", "cli-list", "--limit", "1")
    assert [line[0] for line in words(page)[1:]] == [second]
    cursor = page.stderr.split("--cursor ")[1].split()[0]
    rest = rota("workflow", "list", "--name", "cli-list", "--cursor", cursor)
    assert [line[0] for line in words(rest)[1:]] == [first]
    listed = json.loads(rota("workflow", "list", "--name", "cli-list", "--json").stdout)
    assert listed["count"] == 2


def test_tasks_join_an_open_one_until_it_has_ended(rota, client, submit):
    flow = submit(name="cli-open", open=True)
    joined = rota("submit", "echo", "--agent", "wf3", "--workflow", flow)
    assert joined.exit_code == 0, joined.stderr
    until(lambda: client.get_workflow(flow)["counts"]["succeeded"] == 1)
    assert rota("workflow", "close", flow).stdout == f"{flow} completed\n"
    assert over(client, flow)["total"] == 1
    late = rota("submit", "echo", "--agent", "wf3", "--workflow", flow)
    assert late.exit_code == 1
    assert "the workflow has ended: it is completed" in late.stderr


def test_it_is_paused_resumed_and_cancelled(rota, client, submit):
    flow = submit(of("wf4", "waits"))
    assert rota("workflow", "pause", flow, "--reason", "hold on").stdout == f"{flow} paused\n"
    assert ["pauseReason", "hold", "on"] in words(rota("workflow", "get", flow))
    assert rota("workflow", "resume", flow).stdout == f"{flow} running\n"
    answer = json.loads(rota("workflow", "cancel", flow, "--reason", "no", "--json").stdout)
    assert answer == {"workflowId": flow, "state": "cancelled"}
    view = over(client, flow)
    assert client.get(view["tasks"][0]["taskId"])["error"]["message"] == "no"
    again = rota("workflow", "cancel", flow)
    assert again.exit_code == 1
    assert "the workflow has ended: it is cancelled" in again.stderr


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "must be a JSON object"),
        ({"tasks": []}, "tasks"),
        ({"tasks": [{"agentId": "a", "action": "echo"}], "colour": 1}, "colour"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(rota, flow_file, body, says):
    result = rota("workflow", "submit", flow_file(body))
    assert result.exit_code == 1
    assert says in result.stderr


@pytest.mark.parametrize("how", ["get", "cancel", "pause", "resume", "close"])
def test_one_that_is_not_there_is_not_found(rota, how):
    result = rota("workflow", how, "wfl_nobody")
    assert result.exit_code == 1
    assert "workflow not found" in result.stderr
