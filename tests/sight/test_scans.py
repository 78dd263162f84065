"""Scans of the log: in slices that are reads of their own, so that others have turns in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rota.domain import events as e
from rota.eventlog.chain import GENESIS, extend
from rota.eventlog.codec import encode
from rota.eventlog.memory_store import MemoryLog
from rota.eventlog.port import Stored
from rota.sight import history
from rota.sight.history import Scan, Wanted

if TYPE_CHECKING:
    from rota.sight.history import Page

RECORDS = 25
RARE = Wanted(kinds=frozenset({"agent_paused"}))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    """A log whose 7th and 23rd record are pauses."""
    monkeypatch.setattr(history, "SCAN_ROWS", 2)
    monkeypatch.setattr(history, "SLICE_RECORDS", 4)
    made, digest = MemoryLog(), GENESIS
    for seq in range(1, RECORDS + 1):
        event = e.AgentPaused("a") if seq in (7, 23) else e.ServerStopped("")
        body = encode(e.Record(seq, seq, event))
        digest = extend(digest, body)
        made.append([Stored(seq, digest, body)], seq - 1, 0)
    return made


def made_of(log: MemoryLog, scan: Scan) -> tuple[Page, int]:
    """Give the page, and in how many slices it was made."""
    for count in range(1, RECORDS):
        page = scan.go_on(log)
        if page is not None:
            return page, count
    raise AssertionError("the scan does not end")


def test_a_rare_filter_is_looked_for_in_slices(log: MemoryLog) -> None:
    page, count = made_of(log, Scan(0, 10, RARE))
    assert [each.seq for each in page.found] == [7, 23]
    assert page.next == RECORDS
    assert count == RECORDS // 4 + 1


def test_a_page_that_is_full_ends_the_scan(log: MemoryLog) -> None:
    page, count = made_of(log, Scan(0, 1, RARE))
    assert ([each.seq for each in page.found], page.next, count) == ([7], 7, 2)


def test_all_slices_together_look_at_no_more_than_one_page_may(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "SCAN_MAX", 10)
    page, _ = made_of(log, Scan(0, 10, RARE))
    assert ([each.seq for each in page.found], page.next) == ([7], 10)
    page, _ = made_of(log, Scan(page.next, 10, RARE))
    assert (page.found, page.next) == ([], 20)
