"""Every spelling of a setting is the same setting, wherever it comes from.

All keys of all tables, in all spellings, without and with every preset: what the file says holds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rota.cli import main
from rota.config import (
    BrowserManagerLimits,
    BrowserOSSettings,
    SchedulerSettings,
    ServerSettings,
    Settings,
    WebhookSettings,
    load_settings,
    parse_settings,
    scheduler_changes,
    with_presets,
)
from rota.errors import ConfigError
from rota.presets import PRESETS
from rota.sections import RetrySettings, TypeSettings
from rota.setting_names import spellings

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel

PINCHTAB = {
    "scheduler": {
        "enabled": True,
        "strategy": "fair-fifo",
        "maxQueueSize": 1000,
        "maxPerAgent": 100,
        "maxInflight": 20,
        "maxPerAgentInflight": 10,
        "resultTTLSec": 300,
        "workerCount": 4,
    }
}
"""The document's own file, to the letter."""
TABLES: dict[tuple[str, ...], type[BaseModel]] = {
    ("server",): ServerSettings,
    ("scheduler",): SchedulerSettings,
    ("webhooks",): WebhookSettings,
    ("browseros",): BrowserOSSettings,
    ("browseros", "retry"): RetrySettings,
    ("agent",): BrowserManagerLimits,
    ("types", "script_run"): TypeSettings,
    ("types", "script_run", "retry"): RetrySettings,
}
VALUES: dict[str, Any] = {
    "host": "::1",
    "dataDir": "elsewhere",
    "tokens": {"ops_team": "a long secret of somebody"},
    "onEvent": ["package.module:function"],
    "strategy": "fair-fifo",
    "allowHosts": ["10.0.0.1"],
    "allowOrigins": ["http://localhost:5173"],
    "secret": "hush",
    "agent": "somebody",
    "executor": "builtin",
    "kind": "linear",
    "retry": {"base_ms": 77},
    "tls": {"cert": "c.pem", "key": "k.pem"},
    "followUp": {"type": "echo", "agent": "ann", "params": {"a": 1}, "priority": 1, "joins": True},
    "retryOn": ["timeout"],
    "onInterrupt": "fail",
    "multiplier": 3.5,
    "bodyBytesMax": 70_000,
    "mapBytes": 70_000,
    "snapshotEveryEvents": 700,
    "timeoutMsMax": 700_000,
    "maxQueueBytes": 7 << 20,
    "maxEndedBytes": 7 << 20,
    "maxLogBytesPerMinute": 7 << 20,
}
FLAGS = ("allowNetworkFs", "enabled", "startPaused")
CASES = [
    (path, *each) for path, model in TABLES.items() for each in sorted(spellings(model).items())
]


def value_of(name: str) -> Any:
    """Give a value that no preset has."""
    return False if name == "enabled" else True if name in FLAGS else VALUES.get(name, 7)


def nested(path: tuple[str, ...], table: dict[str, Any]) -> dict[str, Any]:
    """Put a table where it belongs."""
    for name in reversed(path):
        table = {name: table}
    if path[0] == "types":
        table["types"] = {
            "sleep" if "executor" in str(table) else "script_run": table["types"]["script_run"]
        }
    return table


def found_in(settings: Settings, path: tuple[str, ...], name: str) -> Any:
    """Look a setting up as it is printed."""
    table: Any = settings.model_dump(mode="json", by_alias=True)
    for step in path:
        table = table["sleep" if step == "script_run" and name == "executor" else step]
    return table[name]


def meant(name: str) -> Any:
    """Give what a value is printed as."""
    value = value_of(name)
    return value if name != "retry" else RetrySettings(base_ms=77).model_dump(by_alias=True)


@given(
    case=st.sampled_from(CASES),
    presets=st.lists(st.sampled_from(sorted(PRESETS)), max_size=3, unique=True),
)
def test_every_spelling_of_every_key_holds_over_every_preset(
    case: tuple[tuple[str, ...], str, str], presets: list[str]
) -> None:
    path, spelt, name = case
    data = nested(path, {spelt: value_of(name)})
    settings = parse_settings(with_presets(data, tuple(presets)))
    found = found_in(settings, path, name)
    if name == "retry":
        assert found["baseMs"] == 77
    else:
        assert found == value_of(name)


def test_every_key_is_tried_in_each_of_its_spellings() -> None:
    for path, spelt, name in CASES:
        settings = parse_settings(nested(path, {spelt: value_of(name)}))
        assert found_in(settings, path, name) == meant(name), (path, spelt)


@pytest.mark.parametrize("presets", [(), ("pinchtab",), ("pinchtab", "browseros")])
def test_pinchtabs_literal_file_works_with_and_without_its_preset(
    tmp_path: Path, presets: tuple[str, ...]
) -> None:
    file = tmp_path / "pinchtab.json"
    file.write_text(json.dumps(PINCHTAB))
    settings = load_settings(file, presets)
    assert settings.scheduler.result_ttl_sec == 300
    assert settings.limits().inflight_per_agent == 10


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("spelt", ["resultTTLSec", "resultTtlSec", "result_ttl_sec", "resultTTL"])
def test_the_retention_is_one_setting_under_a_preset(preset: str, spelt: str) -> None:
    settings = parse_settings(with_presets({"scheduler": {spelt: 77}}, (preset,)))
    assert settings.scheduler.result_ttl_sec == 77


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_what_config_prints_goes_with_the_preset_it_was_printed_for(
    tmp_path: Path, preset: str
) -> None:
    file = tmp_path / "rota.toml"
    printed = CliRunner().invoke(main, ["config", "--preset", preset])
    assert printed.exit_code == 0, printed.output
    file.write_text(printed.stdout)
    assert (
        load_settings(file, (preset,)).model_dump() == load_settings(None, (preset,)).model_dump()
    )
    checked = CliRunner().invoke(
        main, ["config", "--preset", preset, "--config", str(file), "--check"]
    )
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_what_config_prints_as_json_is_a_file_too(tmp_path: Path, preset: str) -> None:
    file = tmp_path / "rota.json"
    under = tmp_path / "under.toml"
    under.write_text('[executors.web]\nkind = "http"\nurl = "http://127.0.0.1:1"\n')
    words = ["config", "--preset", preset, "--config", str(under), "--json"]
    printed = CliRunner().invoke(main, words)
    assert printed.exit_code == 0, printed.output
    file.write_text(printed.stdout)
    assert load_settings(file).model_dump() == load_settings(under, (preset,)).model_dump()
    checked = CliRunner().invoke(main, ["config", "--config", str(file), "--check"])
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize(
    ("said", "seconds"), [(90, 90), ("5m0s", 300), ("1h2m3s", 3723), ("45s", 45), ("2h", 7200)]
)
def test_the_retention_may_be_said_as_the_stats_show_it(said: Any, seconds: int) -> None:
    settings = parse_settings({"scheduler": {"resultTTL": said}})
    assert settings.scheduler.result_ttl_sec == seconds
    assert scheduler_changes({"resultTTL": said}) == {"result_ttl_sec": seconds}


@pytest.mark.parametrize("said", ["soon", "5", "-5s", "1.5h", "s", "9" * 40 + "s", "1m1h", " "])
def test_a_retention_that_makes_no_sense_is_refused(said: str) -> None:
    with pytest.raises(ConfigError, match=r"resultTTLSec: .*5m0s"):
        parse_settings({"scheduler": {"resultTTL": said}})


@pytest.mark.parametrize("name", ["job_limits", "jobLimits"])
def test_a_table_has_no_name_but_the_documents(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: no such setting"):
        parse_settings({name: {"maxQueueSize": 6}})


def test_a_dotted_key_at_the_top_is_a_table() -> None:
    data = {
        "agent.max_concurrent_jobs": 5,
        "agent": {"max_queue_size": 6},
        "types.script_run.retry.base_ms": 7,
        "scheduler.resultTTL": "8s",
    }
    settings = parse_settings(with_presets(data, ("browsermanager",)))
    limits = settings.job_limits
    assert (limits.max_concurrent_jobs, limits.max_queue_size) == (5, 6)
    retry = settings.types["script_run"].retry
    assert retry is not None
    assert (retry.base_ms, settings.scheduler.result_ttl_sec) == (7, 8)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"agent": {"max_queue_size": 5}, "agent.max_queue_size": 6}, "given twice"),
        ({"agent": 5, "agent.max_queue_size": 6}, "given twice"),
        ({"agent.no_such": 6}, r"agent\.no_such: no such setting"),
        ({"nobody.knows": 6}, r"nobody\.knows: no such setting"),
        ({"agent.": 6}, "no such setting"),
    ],
)
def test_a_dotted_key_that_makes_no_sense_is_named(data: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_settings(data)


@pytest.mark.parametrize(
    ("table", "both"),
    [
        ({"resultTTLSec": 5, "result_ttl_sec": 6}, ("resultTTLSec", "result_ttl_sec")),
        (
            {"maxPerAgentFlight": 5, "max_per_agent_inflight": 6},
            ("maxPerAgentFlight", "max_per_agent_inflight"),
        ),
    ],
)
@pytest.mark.parametrize("presets", [(), ("pinchtab",)])
def test_two_spellings_that_differ_are_an_error_that_names_both(
    table: dict[str, Any], both: tuple[str, str], presets: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(with_presets({"scheduler": table}, presets))
    assert all(name in caught.value.message for name in ("scheduler", *both))


def test_two_spellings_that_agree_are_one() -> None:
    table = {"resultTTLSec": 5, "result_ttl_sec": 5}
    assert parse_settings({"scheduler": table}).scheduler.result_ttl_sec == 5


def test_a_zero_in_the_file_leaves_what_the_preset_says() -> None:
    data = {"scheduler": {"max_queue_size": 0}, "agent": {"max_concurrent_browsers": 0}}
    limits = parse_settings(with_presets(data, ("browsermanager",))).limits()
    assert (limits.queued, limits.browsers) == (500, 20)


def test_a_zero_that_is_a_value_of_its_setting_goes_before_the_preset() -> None:
    """No number of runs, no time after which a run ends, no grace, no waiting for a worker."""
    data = {
        "projects": {"max_concurrent": 0, "runTimeoutMs": 0},
        "scheduler": {"sticky_ms": 0},
        "server": {"graceS": 0},
    }
    settings = parse_settings(with_presets(data, ("projects",)))
    limits = settings.limits()
    assert (limits.projects, limits.run_timeout_ms, limits.sticky_ms) == (0, 0, 0)
    assert settings.server.grace_s == 0
    assert parse_settings(with_presets({}, ("projects",))).limits().projects == 5


def test_names_that_people_chose_stay_as_they_are() -> None:
    data = {"types": {"my_type": {"timeout_ms": 5}}, "server": {"tokens": {"ops_team": "x" * 20}}}
    settings = parse_settings(with_presets(data, ("browsermanager",)))
    assert settings.types["my_type"].timeout_ms == 5
    assert settings.server.tokens == {"ops_team": "x" * 20}


@pytest.mark.parametrize("presets", [(), ("browseros",)])
def test_a_key_that_nobody_knows_is_named_as_it_was_written(presets: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"scheduler\.no_such_key: no such setting"):
        parse_settings(with_presets({"scheduler": {"no_such_key": 5}}, presets))


def test_a_change_by_the_api_is_read_in_every_spelling() -> None:
    for spelt, name in spellings(SchedulerSettings).items():
        if value_of(name) == 7:
            (changed,) = scheduler_changes({spelt: 7}).values()
            assert changed == 7


# -- the environment


@pytest.mark.parametrize(
    "file", [{}, {"browseros": {"max_concurrent": 2}}, {"types": {"chat": {"maxConcurrent": 2}}}]
)
@pytest.mark.parametrize("presets", [(), ("browseros",)])
def test_the_documents_variable_goes_before_file_and_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: dict[str, Any], presets: tuple[str, ...]
) -> None:
    path = tmp_path / "rota.json"
    path.write_text(json.dumps(file))
    monkeypatch.setenv("TASK_QUEUE_MAX_CONCURRENT", "6")
    assert dict(load_settings(path, presets).limits().types)["chat"] == 6
    monkeypatch.setenv("TASK_QUEUE_MAX_CONCURRENT", "0")
    assert dict(load_settings(path, presets).limits().types)["chat"] == (2 if file else 1)


@pytest.mark.parametrize("text", ["many", "-1", "2.5", "1e3", "9" * 40])
def test_a_variable_that_is_no_number_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TASK_QUEUE_MAX_CONCURRENT", text)
    with pytest.raises(ConfigError, match="TASK_QUEUE_MAX_CONCURRENT"):
        load_settings(None)


def test_only_the_first_unknown_key_of_a_change_is_looked_at() -> None:
    changes = {"maxQueueSize": 5, **{f"k{n}": 1 for n in range(1000)}}
    with pytest.raises(ConfigError) as refused:
        scheduler_changes(changes)
    assert refused.value.details["problems"] == ["scheduler.k0: no such setting"]
    assert scheduler_changes({"maxQueueSize": 5, "k": 0}) == {"max_queue_size": 5}
