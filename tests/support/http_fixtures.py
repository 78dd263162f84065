"""What tests over HTTP need: servers, and somebody for them to call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.http_server import Servers, Target, target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Servers]:
    """Starts real servers on real logs; they are stopped, and their logs looked at, afterwards."""
    servers = Servers(tmp_path)
    yield servers
    servers.close()


@pytest.fixture
def tab() -> Iterator[Target]:
    """A browser that rota sends actions to."""
    with target() as made:
        yield made


@pytest.fixture
def hooks() -> Iterator[Target]:
    """A receiver of webhooks."""
    with target() as made:
        yield made
