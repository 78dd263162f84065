"""The whole system under seeds: crashes, failing disks, late results, and every promise checked.

$ pytest tests/simulation                       1,000 seeds
$ pytest tests/simulation --seeds 20000         more
$ pytest -s tests/simulation --seed 17          one, told step by step
"""

from __future__ import annotations

import pytest
from support.simulation import actors_left, run_seed


def test_no_promise_is_broken_under_any_seed(seeds: range) -> None:
    for seed in seeds:
        run_seed(seed, verbose=len(seeds) == 1)
    assert actors_left() == 0


@pytest.mark.parametrize("seed", [1, 7, 23, 99, 4242])
def test_the_same_seed_writes_the_same_log(seed: int) -> None:
    assert run_seed(seed) == run_seed(seed)


def test_different_seeds_write_different_logs() -> None:
    assert len({run_seed(seed).digest for seed in range(20)}) == 20


def test_the_seeds_reach_what_they_are_meant_to_reach() -> None:
    runs = [run_seed(seed) for seed in range(100)]
    for name in runs[0]._fields:
        if name not in ("seed", "digest"):
            assert sum(getattr(run, name) for run in runs) > 0, f"no seed reaches {name}"
    assert sum(run.exact for run in runs) > 500
    assert sum(run.assigned for run in runs) > 1500
