"""The rows of the table for workers, and for those who orchestrate them; routes.py has the rest.

What crosses agents (workflows, new lives for the dead) is for orchestrators.
"""

from __future__ import annotations

from rota.domain.tokens import Right
from rota.http import flow_models, lease_models, models, work_answers
from rota.http.route import Route
from rota.http.v1 import dead, leases, workflows

DEAD_QUERY = ("agentId", "type", "workflowId", "code", "q", "cursor", "limit", "view")

WORK_ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/leases",
        leases.lease,
        "Take tasks to work on; waits for them",
        lease_models.LeaseBody,
        work_answers.LeasePage,
        needs=Right.WORK,
    ),
    Route(
        "POST",
        "/v1/leases/settle",
        leases.settle,
        "Say what became of many leases, and take the next tasks",
        lease_models.SettleBody,
        work_answers.SettledPage,
        needs=Right.WORK,
    ),
    Route(
        "POST",
        "/v1/leases/{id}/heartbeat",
        leases.heartbeat,
        "Let a lease live on; tells of a cancel, and can wait for one",
        lease_models.HeartbeatBody,
        work_answers.HeartbeatView,
        needs=Right.WORK,
    ),
    Route(
        "POST",
        "/v1/leases/{id}/complete",
        leases.complete,
        "The task is done",
        lease_models.CompleteBody,
        work_answers.SettledView,
        needs=Right.WORK,
    ),
    Route(
        "POST",
        "/v1/leases/{id}/fail",
        leases.fail,
        "The attempt failed",
        lease_models.FailBody,
        work_answers.SettledView,
        needs=Right.WORK,
    ),
    Route(
        "POST",
        "/v1/leases/{id}/release",
        leases.release,
        "Give the task back at once; no attempt is spent",
        lease_models.HeldBody,
        work_answers.SettledView,
        needs=Right.WORK,
    ),
    Route(
        "POST",
        "/v1/types",
        leases.declare,
        "Declare what tasks of the types that a worker serves get",
        lease_models.DeclareBody,
        work_answers.DeclaredPage,
        needs=Right.WORK,
    ),
    Route(
        "GET",
        "/v1/workers",
        leases.workers,
        "The workers, heard of last first",
        None,
        work_answers.WorkerPage,
        200,
        ("limit", "cursor"),
        needs=Right.OVERSEE,
    ),
    Route(
        "POST",
        "/v1/workflows",
        workflows.submit,
        "Submit a workflow",
        flow_models.WorkflowBody,
        work_answers.WorkflowSubmitted,
        202,
        also=(200,),
        needs=Right.ORCHESTRATE,
    ),
    Route(
        "GET",
        "/v1/workflows",
        workflows.list_all,
        "List workflows",
        None,
        work_answers.WorkflowPage,
        200,
        ("state", "name", "cursor", "limit"),
        needs=Right.SEE,
    ),
    Route(
        "GET",
        "/v1/workflows/{id}",
        workflows.get_one,
        "One workflow",
        None,
        work_answers.WorkflowView,
        needs=Right.SEE,
    ),
    *(
        Route(
            "POST",
            f"/v1/workflows/{{id}}/{how}",
            handler,
            f"{how.capitalize()} a workflow",
            models.ReasonBody,
            work_answers.WorkflowState,
            needs=Right.ORCHESTRATE,
        )
        for how, handler in workflows.STEERING.items()
    ),
    Route(
        "GET",
        "/v1/dead",
        dead.list_all,
        "Dead tasks",
        None,
        work_answers.DeadPage,
        200,
        DEAD_QUERY,
        needs=Right.SEE,
    ),
    Route(
        "POST",
        "/v1/dead/{id}/revive",
        dead.revive,
        "A new life for a dead task",
        flow_models.ReviveBody,
        work_answers.Revived,
        202,
        needs=Right.ORCHESTRATE,
    ),
    Route(
        "POST",
        "/v1/dead/revive",
        dead.revive_many,
        "New lives for dead tasks",
        flow_models.ReviveManyBody,
        work_answers.RevivedMany,
        needs=Right.ORCHESTRATE,
    ),
)
