"""Waiting for a workflow, and following its records: by the feed, on both faces of the client."""

import asyncio

from rota.client import RotaClient, SyncRotaClient


def test_a_workflow_is_waited_for_until_it_has_ended(server):
    async def story():
        async with RotaClient(server.url) as rota:
            flow = (await rota.submit_workflow([{"action": "held"}], agentId="waited"))[
                "workflowId"
            ]
            assert (await rota.wait_workflow(flow, 0.05))["state"] == "running"
            waiting = asyncio.create_task(rota.wait_workflow(flow, 60))
            held = (await rota.lease("ada", types=["held"], agents=["waited"], wait_s=20))[
                "leases"
            ][0]
            await rota.complete(held["leaseId"], held["token"], 1)
            assert (await waiting)["state"] == "completed"
            return flow

    flow = asyncio.run(story())
    with SyncRotaClient(server.url) as rota:
        assert rota.wait_workflow(flow, 60)["counts"]["succeeded"] == 1


def test_the_records_of_a_workflow_and_of_a_batch_are_followed(server):
    with SyncRotaClient(server.url) as rota:
        flow = rota.submit_workflow([{"action": "echo"}], agentId="followed")["workflowId"]
        batch = rota.submit_batch([{"action": "echo"}], agentId="followed")["batchId"]
        for name, kinds in (
            (flow, ["workflow_submitted", "workflow_ended"]),
            (batch, ["batch_submitted", "batch_finished"]),
        ):
            stream = rota.stream(after=0, task=name)
            assert [next(stream)["kind"] for _ in kinds] == kinds
            rota.wait_workflow(flow, 60)
            assert [event["kind"] for event in rota.events(task=name)["events"]] == kinds
