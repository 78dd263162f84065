"""What the tests of the native API need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.http_fixtures import hooks, serve, tab

if TYPE_CHECKING:
    from support.http_server import Rota, Servers

__all__ = ["hooks", "serve", "tab"]


@pytest.fixture
def rota(serve: Servers) -> Rota:
    """A server as it comes: `echo`, `sleep` and `fail` run, everything else waits."""
    return serve()
