"""What the pages say of events, states and settings is what the code has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.builders import batch, head_of

from rota.config import parse_settings, with_presets
from rota.domain.moves import BIRTHS, MOVES
from rota.domain.project_parts import IN_PROGRESS, PENDING
from rota.domain.task import IN_FLIGHT, WAITING, TaskState
from rota.eventlog.codec import FIELDS, KINDS
from rota.eventlog.lmdb_store import LmdbLog
from rota.executors.callback import sign, signers_of
from rota.http.dialects import automechanica, browsermanager, browseros, pinchtab, projects

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
LIFTED = {"task", "agent"}
_ROW = re.compile(r"^\| `(\w+)` \|([^|]*)\|[^|]+\|$", re.MULTILINE)
_ARROW = re.compile(r"^ *(\S+) --> (\S+): (.+)$", re.MULTILINE)
_TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BACKUP = re.compile(r"^```bash\n(umask .*?)^```", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"`(\w+)`")


def kinds_of(page: str) -> dict[str, set[str]]:
    """Give the kinds of events that a page has a row for, and the fields named there."""
    section = page.partition("## The kinds of events")[2].partition("\n## ")[0]
    return {kind: set(_NAME.findall(fields)) for kind, fields in _ROW.findall(section)}


def test_every_kind_of_event_has_its_row_and_its_fields() -> None:
    page = (REFERENCE / "log_format.md").read_text()
    told = kinds_of(page)
    assert told.keys() == FIELDS.keys()
    for kind, fields in FIELDS.items():
        assert told[kind] <= set(fields), kind
        for field in set(fields) - LIFTED:
            assert f"`{field}`" in page, f"{kind} has a field {field}"


def test_every_move_between_two_states_is_drawn_and_no_other() -> None:
    page = (REFERENCE / "state_machine.md").read_text()
    drawn = {
        (source, event.strip(), target)
        for source, target, events in _ARROW.findall(page)
        for event in events.split(",")
    }
    known = {
        (source.value, KINDS[fact], target.value)
        for source, moves in MOVES.items()
        for fact, target in moves.items()
    }
    known |= {
        ("[*]", KINDS[fact], state.value) for fact, states in BIRTHS.items() for state in states
    }
    assert drawn == known


def test_every_state_is_explained() -> None:
    page = (REFERENCE / "state_machine.md").read_text()
    assert all(f"| `{state.value}` |" in page for state in TaskState)


def test_every_state_has_its_word_in_every_document() -> None:
    page = (REFERENCE / "state_machine.md").read_text().partition("## In other words")[2]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("|")
    ]
    assert head[1:] == [
        "BrowserOS", "PinchTab", "BrowserManager", "AutoMechanica", "queue-state plan"
    ]  # fmt: skip
    told = {state: row[1:] for row in rows for state in row[0].split(", ")}
    assert told.keys() == {state.value for state in TaskState}
    plan = {state: projects.STATES.get(state.value, state.value) for state in TaskState}
    plan |= dict.fromkeys((*WAITING, *IN_FLIGHT), IN_PROGRESS) | {TaskState.BLOCKED: PENDING}
    known = (d.STATES for d in (browseros, pinchtab, browsermanager, automechanica))
    for column, states in enumerate((*known, plan)):
        for state in set(TaskState) - {TaskState.REJECTED}:
            word = told[state.value][column]
            assert states[state] in re.split(r", ", word), (head[column + 1], state)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_configuration_that_is_shown_can_be_used(page: Path) -> None:
    for block in _TOML.findall(page.read_text()):
        presets = ("browsermanager",) if page.stem == "browsermanager" else ()
        parse_settings(with_presets(tomllib.loads(block), presets))


@pytest.mark.parametrize("secret", ["plain words", "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="])
def test_a_receiver_checks_a_signature_as_the_page_says(secret: str) -> None:
    (block,) = _PYTHON.findall((REFERENCE / "executors.md").read_text())
    names: dict[str, Any] = {}
    exec(block, names)
    body = b'{"taskId":"tsk_0o18Xm9C"}'
    headers = {"webhook-id": "dlv_7_tsk_0o18Xm9C", "webhook-timestamp": "1794805431"}
    headers["webhook-signature"] = sign(
        signers_of(["another", secret]), headers["webhook-id"], 1794805431, body
    )
    assert names["is_genuine"](secret, headers, body)
    assert not names["is_genuine"](secret, headers, body + b" ")
    assert not names["is_genuine"]("not it", headers, body)


def test_a_backup_of_a_log_that_is_being_written_is_made_as_the_page_says(tmp_path: Path) -> None:
    (block,) = _BACKUP.findall((REFERENCE / "operations.md").read_text())
    log = LmdbLog(tmp_path / "rota-data")
    first = batch(500)
    log.append(first, 0, log.claim())
    beside = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = ["bash", "-ec", block]
    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "PATH": beside}, capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert b"verified 500 events" in done.stdout
    assert (tmp_path / "COPY" / "data.mdb").stat().st_mode & 0o077 == 0
    log.append(batch(1, head_of(first)), 500, log.epoch())
    log.close()
    copy = LmdbLog(tmp_path / "COPY")
    assert copy.head() == head_of(first)
    copy.append(batch(1, head_of(first)), 500, copy.claim())
    copy.close()
