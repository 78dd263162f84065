"""Every event log keeps the port's promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.eventlog_suite import EventLogSuite

from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.memory_store import MemoryLog

if TYPE_CHECKING:
    from pathlib import Path


class TestMemoryLog(EventLogSuite):
    durable = False

    def open(self, folder: Path) -> MemoryLog:
        del folder
        return MemoryLog()


class TestLmdbLog(EventLogSuite):
    def open(self, folder: Path) -> LmdbLog:
        return LmdbLog(folder, map_bytes=64 << 20)


class TestLmdbLogWithATinyMap(EventLogSuite):
    """The same promises while the map is grown under the writes."""

    def open(self, folder: Path) -> LmdbLog:
        return LmdbLog(folder, map_bytes=1 << 17)
