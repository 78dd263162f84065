"""Bugs that are planted into the scheduler, and the proof that the simulation finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest
from support.simulation import actors_left, first_violation

if TYPE_CHECKING:
    from collections.abc import Callable


class Plant(Protocol):
    """Puts one bug in, by its name."""

    __name__: str

    def __call__(self, patch: pytest.MonkeyPatch, /) -> None:
        """Put it in."""
        ...


SEEDS = range(1000)
"""A bug is looked for under these, up to the first that shows it."""


def finds(plants: list[Plant]) -> Callable[[Plant, pytest.MonkeyPatch], None]:
    """Give the test that each of the bugs breaks a promise under one of the seeds."""

    @pytest.mark.parametrize("plant", plants, ids=lambda plant: plant.__name__)
    def test_the_simulator_finds_the_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
        plant(monkeypatch)
        violation = first_violation(SEEDS)
        assert violation is not None, f"{len(SEEDS)} seeds did not show that {plant.__name__}"
        assert f"--seed {violation.seed}" in str(violation)
        assert "the simulation raised" not in violation.sentence, violation
        assert actors_left() == 0

    return test_the_simulator_finds_the_bug
