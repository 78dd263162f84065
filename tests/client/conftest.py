"""What the tests of the client and the worker share: one real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.server_process import ServerProcess

from rota.client import SyncRotaClient

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that all tests of a session share; they tell their tasks apart by agent."""
    with ServerProcess(tmp_path_factory.mktemp("served") / "data") as process:
        yield process


@pytest.fixture
def rota(server: ServerProcess) -> Iterator[SyncRotaClient]:
    """A client of that server."""
    with SyncRotaClient(server.url) as client:
        yield client
