"""`rota types | stats`, and what `rota list` and `rota get` tell of tasks that wait."""

from __future__ import annotations

import json

from support.server_process import ServerProcess

from rota.cli.task_tables import remark


def test_types_of_a_preset_are_listed_with_their_limits(typed, tmp_path):
    with ServerProcess(tmp_path / "data", args=("--preset", "browsermanager")) as process:
        env = {"ROTA_URL": process.url}
        typed("pause", "--type", "proxy_test", "--reason", "no proxies", env=env)
        rows = [line.split() for line in typed("types", env=env).stdout.splitlines()]
        types = json.loads(typed("types", "--json", env=env).stdout)["types"]
    assert rows[0][:4] == ["type", "executor", "inflight", "maxConcurrent"]
    assert ["browser_start", "pull", "0", "5", "30000", "300000", "3"] in rows
    (proxy,) = [row for row in rows if row[0] == "proxy_test"]
    assert proxy[-3:] == ["yes:", "no", "proxies"]
    (script,) = [kind for kind in types if kind["type"] == "script_run"]
    assert (script["timeoutMsMax"], script["retry"]["maxAttempts"]) == (3_600_000, 2)


def test_stats_count_what_became_of_tasks(rota, client):
    before = json.loads(rota("stats", "--json").stdout)["total"]
    client.wait(client.submit("echo", "fig1")["taskId"], 10)
    after = json.loads(rota("stats", "--json").stdout)
    assert after["total"]["completed"] == before["completed"] + 1
    assert after["scheduler"]["paused"] is False
    shown = rota("stats").stdout
    assert {"waiting", "log.durableSeq", "completed"} <= set(shown.split())
    assert "paused" not in shown


def test_list_and_get_tell_what_a_task_waits_for(rota, client):
    parents = [f"fig-{name}" for name in "abcde"]
    blocked = client.submit("echo", "fig2", depends_on=parents)["taskId"]
    assert "waits for fig-a, fig-b, fig-c and 2 more" in rota("list", "--agent", "fig2").stdout
    assert ", ".join(parents) in rota("get", blocked).stdout
    client.cancel(blocked)
    assert "waits for" not in rota("list", "--agent", "fig2").stdout


def test_list_and_get_tell_of_the_next_attempt_and_the_last_error(rota, client):
    retry = {"max_attempts": 5, "base_s": 3600, "max_s": 3600, "jitter_s": 0.01}
    words = {
        "params": {"message": "not now"},
        "retry": {**retry, "retry_on": ["code:asked_to_fail"]},
    }
    task = client.submit("fail", "fig3", **words)["taskId"]
    next(client.stream(after=0, task_id=task, kinds=("attempt_failed",)))
    shown = client.get(task)
    assert shown["state"] == "scheduled"
    said = f"next at {shown['nextAttemptAt']}; not now"
    assert said in rota("list", "--agent", "fig3").stdout
    table = rota("get", task).stdout
    rows = [line.split(maxsplit=1) for line in table.splitlines()]
    values = {row[0]: row[1].strip() for row in rows}
    assert values["attempt"] == "1 of 5"
    assert values["lastError"] == "asked_to_fail: not now"
    assert values["nextAttemptAt"] == shown["nextAttemptAt"]
    assert values["retry"] == (
        "exponential, 3600000 ms at first, 3600000 ms at most, times 2, up to 10 ms more, "
        "on code:asked_to_fail"
    )


def test_remark_of_a_plain_task_is_empty():
    assert remark({"taskId": "t", "state": "ready"}) == ""


def test_remark_names_the_limit_that_holds_a_task():
    held = {
        "taskId": "t",
        "state": "ready",
        "executor": "pull",
        "waitReason": "workerCount is reached",
    }
    assert remark(held) == "workerCount is reached"
