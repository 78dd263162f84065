"""Options of the acceptance tests."""

from __future__ import annotations

import random

import pytest

KILL_ROUNDS = 20
WORKER_TASKS = 1200


def pytest_addoption(parser: pytest.Parser) -> None:
    """Give the options as `pytest tests/acceptance --kill-rounds 1000`."""
    group = parser.getgroup("rota")
    group.addoption(
        "--kill-rounds", type=int, default=KILL_ROUNDS, help="how often a loaded server is killed"
    )
    group.addoption(
        "--worker-tasks", type=int, default=WORKER_TASKS, help="how many tasks killed workers do"
    )
    group.addoption("--kill-seed", type=int, default=None, help="when and what; else drawn")


@pytest.fixture
def kill_rounds(request: pytest.FixtureRequest) -> int:
    """How many times to kill."""
    return int(request.config.getoption("kill_rounds", KILL_ROUNDS))


@pytest.fixture
def worker_tasks(request: pytest.FixtureRequest) -> int:
    """How many tasks to do; 20,000 for a release."""
    return int(request.config.getoption("worker_tasks", WORKER_TASKS))


@pytest.fixture
def kill_seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run, printed so that a failure can be had again."""
    given = request.config.getoption("kill_seed", None)
    seed = given if given is not None else random.SystemRandom().randrange(1 << 32)
    print(f"--kill-seed {seed}")
    return seed
