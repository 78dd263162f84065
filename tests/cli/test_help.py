"""Every command explains itself; the program starts as a module."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from support.server_process import REPOSITORY

from rota import __version__
from rota.cli import COMMANDS
from rota.cli.batches import batch_command
from rota.cli.dead import dead_command
from rota.cli.projects import project_command
from rota.cli.schedules import schedule_command
from rota.cli.tokens import token_command
from rota.cli.workflows import workflow_command

GROUPS = {
    "batch": batch_command,
    "workflow": workflow_command,
    "project": project_command,
    "schedule": schedule_command,
    "dead": dead_command,
    "token": token_command,
}
BATCH_COMMANDS = [f"{name} {each}" for name, group in GROUPS.items() for each in group.commands]
EVERY = [*COMMANDS, *BATCH_COMMANDS]
WITH_JSON = sorted({*EVERY} - {"serve", "worker", *GROUPS})


@pytest.mark.parametrize("command", EVERY)
def test_help_of_every_command_has_an_example(typed, command):
    result = typed(*command.split(), "--help")
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"rota {command}" in result.output


@pytest.mark.parametrize("command", WITH_JSON)
def test_every_command_that_prints_data_can_print_json(typed, command):
    assert "--json" in typed(*command.split(), "--help").output


def test_help_names_every_command(typed):
    result = typed("--help")
    assert all(f"\n  {command} " in result.output for command in COMMANDS)


def test_unknown_command_is_wrong_usage(typed):
    assert typed("frobnicate").exit_code == 2


def test_program_starts_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "rota", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.stdout == f"rota, version {__version__}\n"


def test_the_version_is_that_of_the_newest_release():
    told = (REPOSITORY / "CHANGELOG.md").read_text()
    assert re.search(r"^## (\d\S*) \(", told, re.MULTILINE)[1] == __version__


@pytest.mark.parametrize(
    "module", ["agents", "batches", "client", "figures", "limits", "pauses", "submit", "task_logs"]
)
def test_asking_a_server_does_not_load_one(module):
    code = f"import sys, rota.cli.{module}; print(*(n in sys.modules for n in ('aiohttp', 'lmdb')))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.stdout == "False False\n"
