"""The receivers that tests call leave nothing behind, whenever a caller comes."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from typing import TYPE_CHECKING, Any

from support.receivers import receiving

if TYPE_CHECKING:
    import pytest


def test_a_connection_that_comes_as_the_receiver_leaves_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: left.append(found.exc_value))

    async def run(turns: int) -> None:
        async with receiving() as receiver:
            with socket.create_connection(("127.0.0.1", receiver.port)):
                for _ in range(turns):
                    await asyncio.sleep(0)

    for turns in range(10):
        asyncio.run(run(turns))
        gc.collect()
        assert left == [], f"after {turns} turns of the loop"
