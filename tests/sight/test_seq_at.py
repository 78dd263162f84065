"""Which record a moment means: bisected, and as a scan of the whole log finds it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain import events as e
from rota.eventlog import replay
from rota.eventlog.chain import GENESIS, extend
from rota.eventlog.codec import decode, encode
from rota.eventlog.memory_store import MemoryLog
from rota.eventlog.port import READ_BYTES_MAX, Stored
from rota.projections import steps as kept
from rota.projections.steps import Steps
from rota.sight.past import seq_at

BEGAN = 1_000_000
PASSES = st.integers(0, 3)
SETS = st.integers(-50, 50)
LIVES = st.lists(st.tuples(PASSES, st.none() | SETS), max_size=40)


class CountedLog(MemoryLog):
    reads = 0

    def read(self, after: int, limit: int, bytes_max: int = READ_BYTES_MAX) -> list[Stored]:
        self.reads += 1
        return super().read(after, limit, bytes_max)


def lived(life: list[tuple[int, int | None]]) -> tuple[CountedLog, Steps]:
    """Make a log: for each pair some time passes, and the clock is set or something happens."""
    log, steps, now, digest = CountedLog(), Steps(), BEGAN, GENESIS
    for seq, (passed, by) in enumerate(life, start=1):
        now += passed
        if by is not None:
            step, now = e.ClockStepped(now, now + by), now + by
            steps.on_stepped(e.Record(seq, now, step))
            body = encode(e.Record(seq, now, step))
        else:
            body = encode(e.Record(seq, now, e.ServerStopped("")))
        digest = extend(digest, body)
        log.append([Stored(seq, digest, body)], seq - 1, 0)
    return log, steps


@given(LIVES)
def test_every_moment_means_the_record_that_a_scan_finds(
    life: list[tuple[int, int | None]],
) -> None:
    log, steps = lived(life)
    for at in range(BEGAN - 200, BEGAN + 200):
        assert seq_at(log, len(life), steps, at) == replay.seq_at(log, at)
    for each in log.read(0, 100):
        assert seq_at(log, len(life), steps, decode(each.body).at) >= each.seq


def test_few_records_are_read_for_it() -> None:
    log, steps = lived([(1, 10 * (-1) ** n if n % 50 == 0 else None) for n in range(10_000)])
    log.reads = 0
    for at in (BEGAN - 1, BEGAN + 5_000, BEGAN + 100_000):
        seq_at(log, 10_000, steps, at)
    assert log.reads <= 3 * 15


@pytest.mark.parametrize("by", [(7, -9), (-9, 7), (-40,), (40,), (-5_000, 1)])
def test_with_more_steps_than_are_kept_the_latest_are_exact_and_the_rest_is_bounded(
    monkeypatch: pytest.MonkeyPatch, by: tuple[int, ...]
) -> None:
    monkeypatch.setattr(kept, "STEPS_MAX", 3)
    life = [(2, by[n // 5 % len(by)] if n % 5 == 0 else None) for n in range(100)]
    log, steps = lived(life)
    oldest = steps.last[0].seq
    moments = [decode(each.body).at for each in log.read(0, 100)]
    exact = 0
    for at in range(moments[-1] - 300, moments[-1] + 30):
        log.reads = 0
        found = seq_at(log, 100, steps, at)
        assert log.reads <= 8
        scanned = replay.seq_at(log, at)
        if scanned >= oldest:
            exact += 1
            assert found == scanned
        elif found:
            assert found < oldest
            assert moments[found - 1] <= at < moments[found]
    assert exact > 20
