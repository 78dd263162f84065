"""A server to talk to, and somebody for it to call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.http_server import Rota, Servers, Target, target, with_tab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def browser() -> Iterator[Target]:
    """An HTTP server that plays the browser: it does what a task's own params ask of it."""
    with target() as made:
        yield made


@pytest.fixture
def receiver() -> Iterator[Target]:
    """An HTTP server that plays the receiver of webhooks."""
    with target() as made:
        yield made


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """Starts real servers on real data folders."""
    made = Servers(tmp_path)
    yield made
    made.close()


@pytest.fixture
def rota(servers: Servers, browser: Target) -> Rota:
    """A server with one worker, so that things happen one after the other."""
    return servers(with_tab(browser, workerCount=1))
