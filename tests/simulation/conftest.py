"""Options of the simulation: how many seeds, or which one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

SEEDS = 1000
SEEDS_PER_TEST = 50


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the command line say which seeds to run."""
    group = parser.getgroup("simulation")
    group.addoption("--seeds", type=int, default=None, help=f"how many seeds to run ({SEEDS})")
    group.addoption("--seed", type=int, default=None, help="run this one seed, and tell all of it")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Cut the seeds into tests."""
    if "seeds" not in metafunc.fixturenames:
        return
    one = metafunc.config.getoption("--seed", None)
    if one is not None:
        metafunc.parametrize("seeds", [range(one, one + 1)], ids=[f"seed-{one}"])
        return
    wanted = metafunc.config.getoption("--seeds", None)
    if wanted is None:
        wanted = int(os.environ.get("ROTA_SIM_SEEDS", SEEDS))
    starts = range(0, wanted, SEEDS_PER_TEST)
    cuts = [range(start, min(start + SEEDS_PER_TEST, wanted)) for start in starts]
    ids = [f"{cut.start}-{cut.stop - 1}" for cut in cuts]
    metafunc.parametrize("seeds", cuts, ids=ids)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run nothing but the one seed that was asked for."""
    if config.getoption("--seed", None) is not None:
        items[:] = [item for item in items if "seeds" in getattr(item, "fixturenames", ())]
