"""The whole system under seeds: crashes, failing disks, late results, and every promise checked.

$ pytest tests/simulation                       1,000 seeds
$ pytest tests/simulation --seeds 20000         more
$ pytest -s tests/simulation --seed 17          one, told step by step
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from support.simulation import actors_left, run_seed

from rota.eventlog.codec import KINDS


@cache
def reached_by(seed: int) -> Counter[str]:
    """Run a seed, once for all tests that ask for it."""
    return run_seed(seed).reached


def test_no_promise_is_broken_under_any_seed(seeds: range) -> None:
    for seed in seeds:
        reached_by(seed) if len(seeds) > 1 else run_seed(seed, verbose=True)
    assert actors_left() == 0


@pytest.mark.parametrize("seed", [1, 7, 23, 99, 4242])
def test_the_same_seed_writes_the_same_log(seed: int) -> None:
    assert run_seed(seed) == run_seed(seed)


def test_different_seeds_write_different_logs() -> None:
    assert len({run_seed(seed).digest for seed in range(20)}) == 20


REACHED = [
    "crash",
    "failure",
    "stop",
    "snapshot",
    "config_changed",
    "admitted",
    "sent",
    "exact",
    "timeout",
    "deadline",
    "queue_timeout",
    "deadline_running",
    "doomed",
    "preempted",
    "unread",
    "lent",
    "killed lease",
    "told to stop",
    "unconfirmed",
    "replaced",
    "duplicate",
    "deduplicated",
    "idempotent",
    "idempotency_conflict",
    "id_taken",
    "missing_dependency",
    "dependency_cycle",
    "dependency_rejected",
    "restored",
    "restored batch",
    "browsers_full",
    "batch_too_large_for_queue",
    "unwelcome",
    "name_taken",
    "token forbidden",
    "followed",
    "joined",
    "tripped cancel",
    "tripped pause",
    "tripped escalate",
    "dependent revived",
    "idempotent workflow",
]
"""What there is no event for, or what an event is not enough to tell."""


def test_the_seeds_reach_what_they_are_meant_to_reach() -> None:
    reached: Counter[str] = Counter()
    for seed in range(600):
        reached.update(reached_by(seed))
    for name in {*KINDS.values(), *REACHED} - {"actor_failed"}:
        assert reached[name] > 0, f"no seed reaches {name}"
    assert reached["exact"] > 500
    assert reached["task_assigned"] > 1500
