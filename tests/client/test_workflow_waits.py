"""Waiting for a workflow, and following its records: by the feed, on both faces of the client."""

import asyncio

import pytest

from rota.client import RotaClient, SyncRotaClient


def test_a_workflow_is_waited_for_until_it_has_ended(server):
    async def story():
        async with RotaClient(server.url) as rota:
            flow = (await rota.submit_workflow([{"action": "held"}], agent="waited")).workflow_id
            with pytest.raises(TimeoutError, match=f"workflow {flow} has not ended") as caught:
                await rota.wait_workflow(flow, 0.05)
            assert caught.value.last.state == "running"
            waiting = asyncio.create_task(rota.wait_workflow(flow, 60))
            held = (await rota.lease("ada", actions=["held"], agents=["waited"], wait_s=20)).leases[
                0
            ]
            await rota.complete(held.lease_id, held.token, 1)
            assert (await waiting).state == "completed"
            return flow

    flow = asyncio.run(story())
    with SyncRotaClient(server.url) as rota:
        assert rota.wait_workflow(flow, 60).counts["succeeded"] == 1


def test_the_records_of_a_workflow_and_of_a_batch_are_followed(server):
    with SyncRotaClient(server.url) as rota:
        flow = rota.submit_workflow([{"action": "echo"}], agent="followed").workflow_id
        batch = rota.submit_batch([{"action": "echo"}], agent="followed").batch_id
        for name, kinds in (
            (flow, ["workflow_submitted", "workflow_ended"]),
            (batch, ["batch_submitted", "batch_finished"]),
        ):
            stream = rota.stream(after=0, task_id=name)
            assert [next(stream).kind for _ in kinds] == kinds
            rota.wait_workflow(flow, 60)
            assert [event.kind for event in rota.events(task_id=name).events] == kinds
