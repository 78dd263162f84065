"""Every call of the native API, described once, for both clients; one file a noun."""

from rota.client.calls.batches import BatchCalls
from rota.client.calls.bulk import BulkCalls
from rota.client.calls.dead import DeadCalls
from rota.client.calls.history import HistoryCalls
from rota.client.calls.leases import LeaseCalls
from rota.client.calls.projects import ProjectCalls
from rota.client.calls.schedules import ScheduleCalls
from rota.client.calls.server import ServerCalls
from rota.client.calls.tasks import TaskCalls
from rota.client.calls.waits import WaitCalls
from rota.client.calls.workflows import WorkflowCalls


class Calls(
    TaskCalls,
    WaitCalls,
    BatchCalls,
    WorkflowCalls,
    BulkCalls,
    ProjectCalls,
    ScheduleCalls,
    DeadCalls,
    HistoryCalls,
    LeaseCalls,
    ServerCalls,
):
    """All of /v1."""


__all__ = ["Calls"]
