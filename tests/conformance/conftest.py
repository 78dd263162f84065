"""What every document's tests need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.chat_server import Chat, chatting, with_chat
from support.http_fixtures import hooks, serve, tab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http_server import Rota, Servers

__all__ = ["hooks", "serve", "tab"]


@pytest.fixture
def chat() -> Iterator[Chat]:
    """A chat endpoint."""
    with chatting() as made:
        yield made


@pytest.fixture
def rota(chat: Chat, serve: Servers) -> Rota:
    """A server with the BrowserOS document's defaults."""
    return serve(with_chat(chat))
