"""`rota config`: prints a file one can start from, checks one, asks a server."""

from __future__ import annotations

import json
import tomllib

import pytest
from support.server_process import ServerProcess

from rota.cli.settings_help import MEANINGS
from rota.config import ExecutorSettings, Settings, load_settings, parse_settings
from rota.presets import PRESETS
from rota.sections import NamespaceSettings, TypeSettings

SECRET = "a-secret-nobody-may-see"
FILE = f"""
[server.tokens]
ops = "{SECRET}"
[scheduler]
max_inflight = 7
[webhooks]
secret = "{SECRET}"
[executors.tab]
kind = "tab"
url = "http://127.0.0.1:9868"
headers = {{ Authorization = "{SECRET}" }}
[types."odd name"]
executor = "tab"
timeoutMs = 500
"""


def test_defaults_are_a_file_that_changes_nothing(typed):
    result = typed("config")
    assert result.exit_code == 0
    assert parse_settings(tomllib.loads(result.stdout)) == Settings()


def test_every_setting_is_printed(typed):
    printed = typed("config").stdout
    names = Settings().model_dump(mode="json", by_alias=True)
    for section in ("server", "scheduler", "webhooks", "browseros", "browsermanager", "agent"):
        assert f"[{section}]" in printed
        assert all(name in printed for name in names[section])


def test_every_setting_has_a_meaning_and_no_meaning_is_stale():
    known = {f"executors.{name}" for name in aliases_of(ExecutorSettings)}
    known |= {f"types.{name}" for name in aliases_of(TypeSettings)}
    known |= {f"namespaces.{name}" for name in aliases_of(NamespaceSettings)}
    for section, values in Settings().model_dump(mode="json", by_alias=True).items():
        if section not in ("executors", "types", "namespaces", "presets"):
            known |= {f"{section}.{name}" for name in values}
    assert set(MEANINGS) == known


def aliases_of(model) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_is_printed_as_a_file_that_says_the_same(typed, preset):
    result = typed("config", "--preset", preset)
    assert result.exit_code == 0
    meant = load_settings(None, (preset,)).model_copy(update={"presets": ()})
    assert parse_settings(tomllib.loads(result.stdout)).model_dump() == meant.model_dump()
    assert f"# presets: {preset}, written out below" in result.stdout


def test_each_setting_says_where_its_value_comes_from(typed, tmp_path, monkeypatch):
    monkeypatch.setenv("TASK_QUEUE_MAX_CONCURRENT", "7")
    path = tmp_path / "rota.toml"
    path.write_text('preset = "pinchtab"\n[scheduler]\nmax_inflight = 33\n')
    printed = typed("config", "--config", path).stdout
    assert "maxQueueSize = 1000  # preset pinchtab; default: 100000; " in printed
    assert "maxInflight = 33  # file; default: 1000; " in printed
    assert "maxConcurrent = 7  # environment TASK_QUEUE_MAX_CONCURRENT; default: 1; " in printed
    config = {"preset": "pinchtab", "scheduler": {"max_inflight": 33}}
    with ServerProcess(tmp_path / "data", config=config) as server:
        asked = typed("config", "--server", "--url", server.url).stdout
    for line in ("maxQueueSize = 1000", "maxInflight = 33", "maxConcurrent = 7"):
        assert [each for each in printed.splitlines() if each.startswith(line)] == [
            each for each in asked.splitlines() if each.startswith(line)
        ]


def test_preset_lies_under_the_file(typed, tmp_path):
    path = tmp_path / "rota.toml"
    path.write_text("[types.browser_start]\nmaxConcurrent = 7\n")
    words = ("config", "--preset", "browsermanager", "--config", path, "--json")
    kind = json.loads(typed(*words).stdout)["types"]["browser_start"]
    assert (kind["maxConcurrent"], kind["timeoutMs"]) == (7, 30_000)


def test_retry_policies_and_routes_are_printed_as_toml_reads_them(typed, tmp_path):
    path = tmp_path / "rota.json"
    retry = {"kind": "fixed", "jitterMs": 0, "retryOn": ['code:"odd"', "timeout"]}
    settings = {
        "types": {"crawl": {"executor": "pull", "retry": retry, "onInterrupt": "fail"}},
        "browsermanager": {"routes": {"/api/crawl": "crawl"}},
        "browseros": {"retry": {"maxAttempts": 9, "multiplier": 1.5}},
        "agent": {"maxConcurrentJobs": 3},
    }
    path.write_text(json.dumps(settings))
    printed = typed("config", "--config", path).stdout
    assert parse_settings(tomllib.loads(printed)) == parse_settings(settings)


def test_file_is_printed_with_defaults_beside_and_without_secrets(typed, tmp_path):
    path = tmp_path / "rota.toml"
    path.write_text(FILE)
    result = typed("config", "--config", path)
    assert "maxInflight = 7  # file; default: 1000" in result.stdout
    again = parse_settings(tomllib.loads(result.stdout))
    assert again.scheduler.max_inflight == 7
    assert again.types["odd name"].timeout_ms == 500
    shown = typed("config", "--config", path, "--json").stdout
    assert json.loads(shown)["server"]["tokens"] == {"ops": "set"}
    assert SECRET not in result.stdout + shown


def test_check_says_whether_a_file_is_good(typed, tmp_path):
    path = tmp_path / "rota.toml"
    path.write_text("[scheduler]\nworkerCount = 2\n")
    good = typed("config", "--config", path, "--check")
    assert (good.exit_code, good.stdout) == (0, f"{path} is good\n")
    path.write_text("[scheduler]\nworkerCount = 'two'\n")
    bad = typed("config", "--config", path, "--check")
    assert bad.exit_code == 1
    assert "scheduler.workerCount" in bad.stderr
    missing = typed("config", "--config", tmp_path / "none.toml", "--check")
    assert missing.exit_code == 1
    assert "cannot read" in missing.stderr


@pytest.mark.parametrize(
    "text",
    [
        "presets = 5",
        'presets = [["a"]]',
        "preset = true",
        "a = " + "[" * 100_000,
        'presets = ["pinchtab"]\n[' + ".".join(["a"] * 2000) + "]",
    ],
)
def test_a_file_of_odd_shape_is_an_error_in_words(typed, tmp_path, text):
    path = tmp_path / "rota.toml"
    path.write_text(text)
    result = typed("config", "--config", path, "--check")
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
    assert result.stderr.strip()


def test_check_without_a_file_is_wrong_usage(typed):
    assert typed("config", "--check").exit_code == 2


def test_server_has_its_own_presets(typed):
    assert typed("config", "--server", "--preset", "pinchtab").exit_code == 2
    assert typed("config", "--preset", "nobodys").exit_code == 2


def test_server_is_asked_what_is_in_force(rota, server):
    shown = json.loads(rota("config", "--server", "--json").stdout)
    assert shown["server"]["dataDir"] == str(server.data_dir)
    assert tomllib.loads(rota("config", "--server").stdout)["scheduler"]["workerCount"] == 64
