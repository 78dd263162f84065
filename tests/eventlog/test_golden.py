"""Logs of every released format are still read, verified and folded to the same state.

A golden log has its records in a `.jsonl` file and what they fold to in an `.outline.json` beside it,
written with the code that made the log. What an outline says must stay true; what a later state knows
besides is not in it. (Since format 1 was made `started_at` has been given another meaning, the start of
the latest attempt; it and the time of execution are the only values that were changed in an outline.)
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from eventlog.golden.make_format_1_clock import records as clock
from eventlog.golden.make_format_1_task_model import records as task_model
from support.builders import fold

from rota.domain import events as e
from rota.domain.schedule import Schedule
from rota.domain.task import ROW
from rota.eventlog.codec import CLASSES, FIELDS, KINDS, VERSIONS, decode, encode
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.port import FORMAT_VERSION, Stored
from rota.eventlog.replay import replay
from rota.projections import keys
from rota.projections.control import limits_to

if TYPE_CHECKING:
    from rota.projections.state import State

GOLDEN = Path(__file__).parent / "golden"
SCHEDULE = sorted({*Schedule.__slots__} - {"agents", "target_json"})
FILES = sorted(GOLDEN.glob("*.jsonl"))
TASK_MODEL = GOLDEN / "format_1_task_model.jsonl"
CLOCK = GOLDEN / "format_1_clock.jsonl"


def read_golden(path: Path) -> list[dict[str, Any]]:
    """Give the lines of records; a first format's file ends with a digest nobody makes today."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if "body" in line]


def bodies_of(path: Path) -> list[bytes]:
    """Give the bodies as the log keeps them."""
    return [line["body"].encode() for line in read_golden(path)]


def outline(state: State) -> dict[str, Any]:
    """Say what is known after a golden log, in plain JSON."""
    tasks = {
        task.id: {
            **dict(zip(ROW, task.to_row(), strict=True)),
            "params": task.params,
            "result": task.result,
            "plan": task.plan and task.plan._asdict(),
            "notes": task.notes and task.notes._asdict(),
        }
        for task in state.tasks
    }
    found = {
        "tasks": tasks,
        "waiting": state.backlog.counts(),
        "in_flight": state.slots.by_agent(),
        "since": state.backlog.dump(),
        "due": state.graph.due,
        "children": {name: sorted(waiting) for name, waiting in state.graph.children.items()},
        "batches": {
            batch.id: [batch.fates, batch.finished_at, batch.left, batch.tasks]
            for batch in state.batches.by_id.values()
        },
        "paused": state.control.paused,
        "paused_types": state.control.paused_types,
        "declared": state.control.dump()["declared"],
        "stopped": state.control.stopped,
        "limits": limits_to(state.control.limits),
        "rules": state.control.rules.to_dict(),
        "totals": state.stats.totals,
        "agents": state.stats.agents,
        "deliveries": state.deliveries.dump(),
        "tokens": state.tokens.dump(),
        "projects": {**state.projects.dump(), "reasons": state.projects.figures.reasons},
        "schedules": {
            schedule.name: {
                **{name: getattr(schedule, name) for name in SCHEDULE},
                "target": schedule.target,
            }
            for schedule in state.schedules.by_name.values()
        },
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def check_outline(known: Any, found: Any, at: str = "") -> None:
    """Everything that is known is still so."""
    if isinstance(known, dict) and isinstance(found, dict):
        assert known.keys() <= found.keys(), at
        for name in known:
            check_outline(known[name], found[name], f"{at}.{name}")
    else:
        assert known == found, at


def test_the_format_of_today_has_a_golden_file() -> None:
    assert (GOLDEN / f"format_{FORMAT_VERSION}.jsonl").exists()


def test_the_golden_files_hold_every_kind_in_its_newest_version() -> None:
    bodies = [json.loads(body) for path in FILES for body in bodies_of(path)]
    found = {(body["kind"], body["v"]) for body in bodies}
    assert {kind for kind, _ in found} >= set(CLASSES)
    assert found >= set(VERSIONS.items())


def test_the_golden_files_hold_every_field_that_an_event_can_have() -> None:
    given: dict[str, set[str]] = {kind: set() for kind in CLASSES}
    for path in FILES:
        for body in bodies_of(path):
            raw = json.loads(body)
            if raw["v"] == VERSIONS[raw["kind"]]:
                given[raw["kind"]] |= {"task", "agent"} & raw.keys() | raw["data"].keys()
    for kind, fields in FIELDS.items():
        assert given[kind] == set(fields), kind


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_chain_of_a_golden_log_verifies(path: Path) -> None:
    digest = bytes(32)
    for line in read_golden(path):
        digest = blake2b(digest + line["body"].encode(), digest_size=32).digest()
        assert digest.hex() == line["digest"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_log_folds_to_what_it_always_did(path: Path, tmp_path: Path) -> None:
    lines = read_golden(path)
    records = [decode(body) for body in bodies_of(path)]
    known = json.loads(path.with_suffix(".outline.json").read_text())
    state = fold(records)
    for kind, by, key, *held in known.pop("keys", ()):  # which the state knows by their digests
        name = {"idempotency": keys.idempotency, "dedup": keys.dedup}[kind](by, key)
        assert state.keys.get(name) == keys.Held(*held)
    check_outline(known, outline(state))
    log = LmdbLog(tmp_path / "data", map_bytes=64 << 20)
    stored = [
        Stored(record.seq, bytes.fromhex(line["digest"]), line["body"].encode())
        for record, line in zip(records, lines, strict=True)
    ]
    log.append(stored, 0, 0)
    assert list(replay(log)) == records
    assert fold(replay(log)).digest() == fold(records).digest()
    log.close()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_bodies_of_a_golden_log_are_written_the_same_today(path: Path) -> None:
    """Byte for byte: a change of the writer is a change of the format."""
    for body in bodies_of(path):
        record = decode(body)
        if json.loads(body)["v"] == VERSIONS[KINDS[type(record.event)]]:
            assert encode(record) == body


def test_the_task_model_reads_as_it_was_told() -> None:
    assert [decode(body) for body in bodies_of(TASK_MODEL)] == task_model()
    assert [encode(record) for record in task_model()] == bodies_of(TASK_MODEL)


def test_the_steps_of_the_clock_read_as_they_were_told() -> None:
    assert [decode(body) for body in bodies_of(CLOCK)] == clock()
    assert [encode(record) for record in clock()] == bodies_of(CLOCK)


def test_a_task_of_the_first_format_has_no_plan() -> None:
    first = GOLDEN / "format_1.jsonl"
    for event in (decode(body).event for body in bodies_of(first)):
        if isinstance(event, e.TaskSubmitted):
            assert event.waits is None
            assert event.plan is None
