"""`rota config`: prints a file one can start from, checks one, asks a server."""

from __future__ import annotations

import json
import tomllib

from rota.config import Settings, parse_settings

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
    for section in ("server", "scheduler", "webhooks"):
        assert f"[{section}]" in printed
        assert all(name in printed for name in names[section])


def test_file_is_printed_with_defaults_beside_and_without_secrets(typed, tmp_path):
    path = tmp_path / "rota.toml"
    path.write_text(FILE)
    result = typed("config", "--config", path)
    assert "maxInflight = 7  # default: 20" in result.stdout
    again = parse_settings(tomllib.loads(result.stdout))
    assert again.scheduler.max_inflight == 7
    assert again.types["odd name"].timeout_ms == 500
    shown = typed("config", "--config", path, "--json").stdout
    assert json.loads(shown)["server"]["tokens"] == ["ops"]
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


def test_check_without_a_file_is_wrong_usage(typed):
    assert typed("config", "--check").exit_code == 2


def test_server_is_asked_what_is_in_force(rota, server):
    shown = json.loads(rota("config", "--server", "--json").stdout)
    assert shown["server"]["dataDir"] == str(server.data_dir)
    assert tomllib.loads(rota("config", "--server").stdout)["scheduler"]["workerCount"] == 4
