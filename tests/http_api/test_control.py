"""/v1/agents, /v1/stats, /v1/config: what operators look at and set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from support.http_server import Rota, Servers, Target, until, with_tab

from rota.config import load_settings, parse_settings
from rota.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def agents(rota: Rota) -> dict[str, dict[str, Any]]:
    found = rota.get("/v1/agents").json
    assert found["count"] == len(found["agents"])
    return {row["agentId"]: row for row in found["agents"]}


# -- agents --------------------------------------------------------------------------------------


def test_agents_are_listed_with_their_figures(serve: Servers) -> None:
    rota = serve()
    rota.ended(rota.submit_native("ann"))
    rota.submit_native("bob", "waits")
    assert agents(rota) == {
        "ann": {
            "agentId": "ann", "waiting": 0, "inflight": 0, "paused": False,
            "submitted": 1, "completed": 1, "failed": 0, "cancelled": 0, "rejected": 0,
        },
        "bob": {
            "agentId": "bob", "waiting": 1, "inflight": 0, "paused": False,
            "submitted": 1, "completed": 0, "failed": 0, "cancelled": 0, "rejected": 0,
        },
    }  # fmt: skip


def test_a_paused_agent_is_not_served_until_it_is_resumed(serve: Servers) -> None:
    rota = serve()
    answer = rota.post("/v1/agents/ann/pause", {"reason": "holiday"})
    assert (answer.status, answer.json) == (200, {"agentId": "ann", "paused": True})
    held = rota.submit_native("ann")
    assert rota.ended(rota.submit_native("bob"))["state"] == "done"
    assert rota.task(held)["state"] == "queued"
    assert agents(rota)["ann"]["paused"] is True
    assert agents(rota)["ann"]["pauseReason"] == "holiday"
    answer = rota.post("/v1/agents/ann/resume")
    assert (answer.status, answer.json) == (200, {"agentId": "ann", "paused": False})
    assert rota.ended(held)["state"] == "done"
    assert agents(rota)["ann"]["paused"] is False


def test_pausing_lets_what_runs_end(serve: Servers, tab: Target) -> None:
    rota = serve(with_tab(tab))
    running = rota.submit("ann", tabId="t", params={"hold": "all"})
    tab.wait_for(1)
    rota.post("/v1/agents/ann/pause")
    tab.release("all")
    assert rota.ended(running)["state"] == "done"


def test_pausing_and_resuming_twice_is_one_fact_each(serve: Servers) -> None:
    rota = serve()
    for verb in ("pause", "pause", "resume", "resume"):
        assert rota.post(f"/v1/agents/ann/{verb}").status == 200
    kinds = [event["kind"] for event in rota.events(agentId="ann")]
    assert kinds == ["agent_paused", "agent_resumed"]


def test_a_pause_outlives_a_restart(serve: Servers) -> None:
    rota = serve()
    rota.post("/v1/agents/ann/pause", {"reason": "holiday"})
    task_id = rota.submit_native("ann")
    rota.restart()
    assert agents(rota)["ann"]["pauseReason"] == "holiday"
    assert rota.task(task_id)["state"] == "queued"
    rota.post("/v1/agents/ann/resume")
    assert rota.ended(task_id)["state"] == "done"


@pytest.mark.parametrize("agent", ["ann", "Ann Smith", "é/ü", "100%", "a?b#c", "..", "日本"])
def test_agents_with_odd_names_can_be_paused(serve: Servers, agent: str) -> None:
    rota = serve()
    answer = rota.post(f"/v1/agents/{quote(agent, safe='')}/pause")
    assert (answer.status, answer.json["agentId"]) == (200, agent)
    task_id = rota.submit_native(agent)
    assert rota.task(task_id)["state"] == "queued"


@pytest.mark.parametrize("agent", ["a\u00a0b", "a\u200bb", "a\u3000b"])
def test_an_agent_that_may_submit_can_be_paused(serve: Servers, agent: str) -> None:
    rota = serve()
    submitted = rota.post("/v1/tasks", {"agentId": agent, "action": "waits"})
    paused = rota.post(f"/v1/agents/{quote(agent, safe='')}/pause")
    assert (submitted.status, paused.status) in ((202, 200), (400, 400))


@pytest.mark.parametrize("agent", ["%20", "%00", "a%0Ab", "x" * 201, "%1b[31m"])
def test_names_that_could_not_submit_cannot_be_paused(serve: Servers, agent: str) -> None:
    rota = serve()
    assert rota.post(f"/v1/agents/{agent}/pause").status == 400
    assert agents(rota) == {}


# -- stats ---------------------------------------------------------------------------------------


def test_stats_count_since_start_and_for_all_time(serve: Servers) -> None:
    rota = serve()
    rota.ended(rota.submit_native())
    rota.ended(rota.submit_native(action="fail"))
    rota.restart()
    rota.ended(rota.submit_native())
    rota.submit_native(action="waits")
    found = rota.get("/v1/stats").json
    queue = found["queue"]
    assert queue.pop("inflightBytes") == 0
    assert 1000 <= queue.pop("waitingBytes") < queue.pop("endedBytes") < 10_000
    assert queue == {"waiting": 1, "inflight": 0, "agents": 1, "tasksInMemory": 4}
    assert (found["sinceStart"]["submitted"], found["total"]["submitted"]) == (2, 4)
    assert (found["sinceStart"]["failed"], found["total"]["failed"]) == (0, 1)
    assert (found["sinceStart"]["completed"], found["total"]["completed"]) == (1, 2)
    assert found["sinceStart"]["avgExecutionMs"] >= 0
    assert set(found["callbacks"]) == {"pending", "delivered", "failedTries", "abandoned"}
    assert found["log"]["seq"] == found["log"]["durableSeq"]


# -- config --------------------------------------------------------------------------------------


def test_the_configuration_is_shown_without_secrets(serve: Servers) -> None:
    secret = "s3cr3t-" + "x" * 20
    rota = serve(
        {
            "server": {"tokens": {"ops": secret}},
            "webhooks": {"secret": [secret, "other-" + secret]},
            "executors": {
                "web": {"kind": "http", "url": "http://127.0.0.1:9", "headers": {"X-Key": secret}}
            },
        }
    )
    rota.token = secret
    answer = rota.get("/v1/config")
    assert answer.status == 200
    assert secret not in answer.body.decode()
    assert answer.json["server"]["tokens"] == {"ops": "set"}
    assert answer.json["webhooks"]["secret"] == "set"
    assert answer.json["executors"]["web"]["headers"] == {"X-Key": "set"}
    assert secret not in rota.post("/v1/config/reload").body.decode()


def test_credentials_in_an_executors_address_are_not_shown(serve: Servers) -> None:
    url = "http://robot:hunter2hunter2@127.0.0.1:9/run?key=hunter2#hunter2"
    rota = serve({"executors": {"web": {"kind": "http", "url": url}}})
    answer = rota.get("/v1/config")
    assert "hunter2" not in answer.body.decode()
    assert answer.json["executors"]["web"]["url"] == "http://127.0.0.1:9/run"


def test_of_the_command_of_an_executor_only_the_program_is_shown(serve: Servers) -> None:
    rota = serve({"executors": {"own": {"kind": "command", "argv": ["true", "--key", "hunter2"]}}})
    answer = rota.get("/v1/config")
    assert "hunter2" not in answer.body.decode()
    assert answer.json["executors"]["own"]["argv"] == ["true"]


def test_a_reload_is_recorded_with_who_and_what(serve: Servers) -> None:
    rota = serve({"server": {"tokens": {"ops": "t" * 20}}})
    rota.token = "t" * 20
    answer = rota.post("/v1/config/reload", {"scheduler": {"maxInflight": 3}})
    assert (answer.status, answer.json["changed"]) == (200, ["maxInflight"])
    assert answer.json["scheduler"]["maxInflight"] == 3
    (event,) = rota.events(kind="config_changed")
    assert (event["by"], event["data"]["changed"]) == ("ops", ["maxInflight"])


def test_another_strategy_holds_from_a_reload_on_and_over_a_restart(serve: Servers) -> None:
    rota = serve({"scheduler": {"maxInflight": 1}})

    def order() -> list[str]:
        """Tell in which order three tasks get the only slot."""
        rota.post("/v1/scheduler/pause")
        asked = (("ann", 3), ("bob", 3), ("bob", 0))
        names = {rota.submit_native(a, priority=n): f"{a} {n}" for a, n in asked}
        rota.post("/v1/scheduler/resume")
        for name in names:
            until(lambda name=name: rota.get(f"/v1/tasks/{name}").json["state"] == "succeeded")
        given = [event["task"] for event in rota.events(kind="task_assigned")]
        return [names[task] for task in given if task in names]

    assert order() == ["ann 3", "bob 0", "bob 3"]
    answer = rota.post("/v1/config/reload", {"scheduler": {"strategy": "priority-fifo"}})
    assert (answer.status, answer.json["changed"]) == (200, ["strategy"])
    assert order() == ["bob 0", "ann 3", "bob 3"]
    (event,) = rota.events(kind="config_changed")
    assert event["data"]["settings"]["strategy"] == "priority-fifo"
    rota.post("/v1/config/reload", {"scheduler": {"strategy": "fair-fifo"}})
    assert order() == ["ann 3", "bob 0", "bob 3"]
    rota.config = {"scheduler": {"maxInflight": 1, "strategy": "priority-fifo"}}
    rota.restart()
    assert order() == ["bob 0", "ann 3", "bob 3"]
    refused = rota.post("/v1/config/reload", {"scheduler": {"strategy": "lifo"}})
    assert (refused.status, "strategy" in refused.json["error"]) == (400, True)


def test_the_shown_configuration_is_the_one_in_force(serve: Servers) -> None:
    rota = serve()
    rota.post("/v1/config/reload", {"scheduler": {"enabled": False}})
    shown = rota.get("/v1/config").json["scheduler"]["enabled"]
    assert (rota.get("/tasks").status == 200) is shown


@pytest.mark.parametrize("value", [True, "7", [7], {"n": 7}, 7.5, None])
def test_a_wrong_type_in_a_reload_is_an_error_that_names_the_key(
    serve: Servers, value: Any
) -> None:
    rota = serve()
    answer = rota.post("/v1/config/reload", {"scheduler": {"maxInflight": value}})
    assert answer.status == 400
    assert "maxInflight" in answer.json["error"]
    assert rota.get("/v1/config").json["scheduler"]["maxInflight"] == 1000


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"scheduler": {"maxInflight": -1}}, "maxInflight"),
        ({"scheduler": {"max_inflite": 1}}, "max_inflite"),
        ({"server": {"body_bytes_max": 1}}, "body"),
        ({"executors": {"x": {"kind": "smoke", "url": "http://a"}}}, "kind"),
        ({"executors": {"x": {"kind": "http", "url": "ftp://a"}}}, "url"),
        ({"executors": {"pull": {"kind": "http", "url": "http://a"}}}, "pull"),
        ({"types": {"x": {"executor": "nobody"}}}, "executor"),
        ({"types": {"x": {"executor": "builtin"}}}, "builtin"),
        ({"surprise": {}}, "surprise"),
    ],
)
def test_a_bad_setting_is_named(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        parse_settings(settings)


def test_toml_and_json_camel_and_snake_are_all_read(tmp_path: Path) -> None:
    toml = tmp_path / "rota.toml"
    toml.write_text("[scheduler]\nmax_queue_size = 5\nresultTTLSec = 6\n[server]\nport = 1234\n")
    json_file = tmp_path / "rota.json"
    json_file.write_text(
        '{"scheduler": {"maxQueueSize": 5, "result_ttl_sec": 6}, "server": {"port": 1234}}'
    )
    assert load_settings(toml).model_dump() == load_settings(json_file).model_dump()
    assert load_settings(toml).scheduler.result_ttl_sec == 6


def test_a_port_of_zero_asks_for_a_free_port() -> None:
    assert parse_settings({"server": {"port": 0}}).server.port == 0


def test_types_limit_and_route_actions(serve: Servers, tab: Target) -> None:
    rota = serve(
        {
            "executors": {"web": {"kind": "http", "url": tab.url}},
            "types": {"scan": {"executor": "web", "timeoutMs": 5000, "maxConcurrent": 1}},
        }
    )
    for n in range(2):
        rota.submit_native("ann", "scan", params={"n": n})
    first = tab.wait_for(1)[0].body
    assert (first["action"], first["params"]) == ("scan", {"n": 0})
    until(lambda: len(tab.requests) == 2)
    assert rota.get("/v1/tasks?type=scan").json["tasks"][0]["timeoutMs"] == 5000
