"""What the tests of the command line share: one real server, and a way to type commands at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from support.server_process import ServerProcess

from rota.cli import main
from rota.client.sync_client import JsonClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that all tests of a session share; they tell their tasks apart by agent."""
    with ServerProcess(tmp_path_factory.mktemp("served") / "data") as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> JsonClient:
    """A client of that server."""
    return JsonClient(server.url)


@pytest.fixture
def typed() -> Callable[..., Result]:
    """Type a command; gives what it printed and its exit code."""

    def run(*words: Any, env: dict[str, str] | None = None) -> Result:
        result = CliRunner().invoke(main, [str(word) for word in words], env=env)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def rota(server: ServerProcess, typed: Callable[..., Result]) -> Callable[..., Result]:
    """Type a command to the shared server."""

    def run(*words: Any) -> Result:
        return typed(*words, env={"ROTA_URL": server.url, "ROTA_TOKEN": ""})

    return run
