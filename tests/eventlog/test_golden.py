"""Logs of every released format are still read, verified and folded to the same state."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from support.builders import fold

from rota.eventlog.codec import CLASSES, KINDS, VERSIONS, decode, encode
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.port import FORMAT_VERSION, Stored
from rota.eventlog.replay import replay

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.jsonl"))


def read_golden(path: Path) -> tuple[list[dict[str, Any]], str]:
    """Give the lines of records, and the digest of the state they fold to."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return lines[:-1], lines[-1]["state"]


def test_the_format_of_today_has_a_golden_file() -> None:
    assert (GOLDEN / f"format_{FORMAT_VERSION}.jsonl").exists()


def test_the_golden_files_hold_every_kind_in_its_newest_version() -> None:
    bodies = [json.loads(line["body"]) for path in FILES for line in read_golden(path)[0]]
    found = {(body["kind"], body["v"]) for body in bodies}
    assert {kind for kind, _ in found} >= set(CLASSES)
    assert found >= set(VERSIONS.items())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_chain_of_a_golden_log_verifies(path: Path) -> None:
    digest = bytes(32)
    for line in read_golden(path)[0]:
        digest = blake2b(digest + line["body"].encode(), digest_size=32).digest()
        assert digest.hex() == line["digest"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_log_folds_to_the_state_it_always_did(path: Path, tmp_path: Path) -> None:
    lines, state = read_golden(path)
    bodies = [line["body"].encode() for line in lines]
    records = [decode(body) for body in bodies]
    assert fold(records).digest() == state
    log = LmdbLog(tmp_path / "data", map_bytes=64 << 20)
    stored = [
        Stored(record.seq, bytes.fromhex(line["digest"]), body)
        for record, body, line in zip(records, bodies, lines, strict=True)
    ]
    log.append(stored, 0, 0)
    assert list(replay(log)) == records
    assert fold(replay(log)).digest() == state
    log.close()


def test_the_bodies_of_the_newest_format_are_written_the_same_today() -> None:
    """Byte for byte: a change of the writer is a change of the format."""
    for line in read_golden(GOLDEN / f"format_{FORMAT_VERSION}.jsonl")[0]:
        body = line["body"].encode()
        record = decode(body)
        if json.loads(body)["v"] == VERSIONS[KINDS[type(record.event)]]:
            assert encode(record) == body
