"""`rota config --check` says all that is wrong with a file, and what to do about it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.fixture
def check(typed, tmp_path):
    def run(text, *words):
        path = tmp_path / "rota.toml"
        path.write_text(text)
        return typed("config", "--config", path, "--check", *words)

    return run


def test_every_problem_is_named(check):
    result = check("[scheduler]\nworkerCount = 'two'\nnoSuch = 1\n[webhooks]\nattempts = 99\n")
    assert result.exit_code == 1
    for where in (
        "scheduler.workerCount",
        "scheduler.noSuch: no such setting",
        "webhooks.attempts",
    ):
        assert where in result.stderr


def test_what_only_a_start_would_find_is_found(check):
    result = check(
        "[server]\nhost = '0.0.0.0'\nonEvent = ['no_such_module:hear', 'json:nothing', 'json']\n"
        "[webhooks]\nsecret = 'whsec_***'\nallowHosts = ['not a host', 'localhost']\n"
    )
    assert result.exit_code == 1
    for problem in (
        "listening on 0.0.0.0 would let anybody in",
        "webhooks.secret begins with whsec_",
        "'not a host' is not a host name",
        "no_such_module cannot be imported: ModuleNotFoundError: No module named 'no_such_module'",
        "json has no function nothing",
        "'json' names no function",
    ):
        assert problem in result.stderr
    assert "PYTHONPATH" in result.stderr
    assert result.stderr.count("error:") == 6


def test_every_short_token_is_named(check):
    result = check("[server.tokens]\na = 'short'\nb = 'shorter'\n")
    assert "server.tokens.a" in result.stderr
    assert "server.tokens.b" in result.stderr
    assert "shorter'" not in result.stderr


def test_a_module_that_breaks_while_it_is_imported_is_a_problem(check, tmp_path, monkeypatch):
    (tmp_path / "my_broken_hooks.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = check("[server]\nonEvent = ['my_broken_hooks:hear']\n")
    assert "my_broken_hooks cannot be imported: ZeroDivisionError" in result.stderr


def test_a_module_that_can_be_imported_is_good(check, tmp_path, monkeypatch):
    (tmp_path / "my_good_hooks.py").write_text("def hear(record):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert check("[server]\nonEvent = ['my_good_hooks:hear']\n").exit_code == 0


def test_programs_get_the_problems_as_json(check):
    found = json.loads(check("[server]\nonEvent = ['no_such_module:hear']\n", "--json").stdout)
    assert found["ok"] is False
    assert "cannot be imported" in found["problems"][0]["problem"]
    assert json.loads(check("", "--json").stdout)["ok"] is True


def test_a_server_that_cannot_import_its_handler_says_so(tmp_path):
    path = tmp_path / "rota.toml"
    path.write_text("[server]\nonEvent = ['no_such_module:hear']\n")
    command = [sys.executable, "-m", "rota", "serve", "--port", "0", "--config", str(path)]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "no_such_module cannot be imported" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_namespaces_that_share_a_folder_are_named(check):
    result = check(
        "[namespaces.a]\ndataDir = 'one'\n[namespaces.b]\ndataDir = 'one/two'\n"
        "[namespaces.c]\ndataDir = 'rota-data'\n[namespaces.d]\n"
    )
    assert result.exit_code == 1
    assert "namespace b: its folder lies inside that of a" in result.stderr
    assert "namespace c: its folder is that of default" in result.stderr
    assert "namespace d" not in result.stderr
    assert "give namespaces.b.dataDir another one" in result.stderr
