"""Schedules by the clients that users import: both faces, pages and what is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from rota.client import RotaClient, SyncRotaClient
from rota.errors import Conflict, InvalidRequest, NotFound

if TYPE_CHECKING:
    from support.server_process import ServerProcess

TASK = {"agent": "ann", "action": "browse"}


def test_both_clients_have_schedules_from_their_making_to_their_end(server: ServerProcess) -> None:
    with SyncRotaClient(server.url) as client:
        made = client.create_schedule("nightly", "0 3 * * *", task=TASK, overlap="cancel")
        assert made.state == "active"
        with pytest.raises(Conflict) as caught:
            client.create_schedule("nightly", "@daily", task=TASK)
        assert caught.value.code == "schedule_exists"
        for n in range(3):
            client.create_schedule(f"more-{n}", "@daily", project={"id": "p"}, paused=True)
        assert client.schedules(limit=2).next_cursor == "more-1"
        named = [each.name for each in client.iter_schedules(state="paused", makes="project")]
        assert named == ["more-0", "more-1", "more-2"]
        fired = client.run_schedule("nightly")
        assert client.schedule_history("nightly").firings[0].id == fired.id
        changed = client.change_schedule("nightly", cron="@hourly", jitter_s=5)
        assert (changed.cron, changed.jitter_s) == ("@hourly", 5)
        with pytest.raises(InvalidRequest, match="never comes"):
            client.change_schedule("nightly", cron="0 0 31 2 *")

    async def steer() -> None:
        async with RotaClient(server.url) as client:
            assert (await client.pause_schedule("nightly", "a move")).pause_reason == "a move"
            assert (await client.resume_schedule("nightly")).state == "active"
            assert (await client.delete_schedule("nightly", "enough")).deleted is True
            with pytest.raises(NotFound):
                await client.get_schedule("nightly")

    asyncio.run(steer())
