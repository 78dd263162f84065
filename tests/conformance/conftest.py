"""What every document's tests need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.chat_server import Chat, Status, chatting, with_chat
from support.http_fixtures import hooks, serve, tab
from support.job_server import SOON, Agent, Agents, agents_under

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.http_server import Rota, Servers

__all__ = ["hooks", "serve", "tab"]


@pytest.fixture
def chat() -> Iterator[Chat]:
    """A chat endpoint; what is told to `fail` does."""
    with chatting() as made:
        made.on("fail", Status(500, "Internal Server Error"))
        yield made


@pytest.fixture
def rota(chat: Chat, serve: Servers) -> Rota:
    """A server with the BrowserOS document's defaults."""
    return serve(with_chat(chat))


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    """Servers that stand in for BrowserManager, and a browser that they share."""
    with agents_under(tmp_path) as made:
        yield made


@pytest.fixture
def agent(agents: Agents) -> Agent:
    """An agent with the BrowserManager document's values, but quick to try again."""
    return agents.start(types={"*": {"retry": SOON}})
