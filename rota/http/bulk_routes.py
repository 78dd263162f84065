"""The rows of the table for many tasks at once, and another priority; routes.py has the rest."""

from __future__ import annotations

from rota.domain.tokens import Right
from rota.http import bulk_models
from rota.http.route import Route
from rota.http.v1 import bulk, tasks

BULK_ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/tasks/{id}/reprioritise",
        tasks.reprioritise,
        "Another priority for a task",
        bulk_models.PriorityBody,
        bulk_models.Reprioritised,
        needs=Right.SUBMIT,
    ),
    Route(
        "POST",
        "/v1/tasks/cancel",
        bulk.cancel,
        "Cancel many tasks",
        bulk_models.CancelManyBody,
        bulk_models.BulkDone,
        needs=Right.SUBMIT,
    ),
    Route(
        "POST",
        "/v1/tasks/retry",
        bulk.retry,
        "New lives for many failed tasks",
        bulk_models.RetryManyBody,
        bulk_models.BulkDone,
        needs=Right.SUBMIT,
    ),
    Route(
        "POST",
        "/v1/tasks/reprioritise",
        bulk.reprioritise,
        "Another priority for many tasks",
        bulk_models.ReprioritiseManyBody,
        bulk_models.BulkDone,
        needs=Right.SUBMIT,
    ),
)
