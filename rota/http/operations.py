"""How many operations on many tasks run at once: each holds a list of what it has found."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rota.http.problems import HttpProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

OPERATIONS_MAX = 4
"""So many in one namespace."""


class Operations:
    """How many run, in one namespace."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count as one while in this block. Raises HttpProblem if too many run."""
        if self.count >= OPERATIONS_MAX:
            msg = f"{OPERATIONS_MAX} operations on many tasks run already; try again when one ends"
            raise HttpProblem(503, "too_many_operations", msg)
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
