"""Requests that are kept to be submitted later, as records have them: plain values, and back.

The items of projects and what schedules make are kept so. What is not said is not written; who
asked is in the record. What a client says once, such as an id of its own, is not kept either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain.commands import Flow
from rota.domain.intake import BatchRequest, Request
from rota.domain.plan import NO_PLAN, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.domain.task import Task

_LEFT_OUT = frozenset({"by", "plan", "depends", "dedup", "usual", "wanted_id"})
_FLOW = Flow()


def write_request(request: Request) -> dict[str, Any]:
    """Write what a request of one task says, whose shape was checked."""
    none = Request(request.agent, request.action)
    said = {
        name: value
        for name, value, usual in zip(request._fields, request, none, strict=True)
        if value != usual and name not in _LEFT_OUT
    }
    plan = {name: value for name, value in request.plan._asdict().items() if value is not None}
    more: dict[str, Any] = {"depends": list(request.depends)} if request.depends else {}
    more |= {"plan": plan} if plan else {}
    return {"agent": request.agent, "action": request.action, **said, **more}


def read_request(written: Mapping[str, Any], by: str) -> Request:
    """Read what `write_request` wrote, in the name of whoever asks for it now."""
    said = dict(written)
    plan, depends = said.pop("plan", None), tuple(said.pop("depends", ()))
    request = Request(**said, depends=depends, by=by)
    return request._replace(plan=Plan(**plan)) if plan else request


def request_of(task: Task, params: dict[str, Any] | None) -> Request:
    """Give what a task asked for, with these params, as a request that can be made again."""
    plan = task.plan or NO_PLAN
    return Request(
        task.agent,
        task.action,
        params=params,
        priority=task.priority,
        dialect=task.dialect,
        tab=task.tab,
        ref=task.ref,
        callback=task.callback,
        deadline=task.deadline,
        timeout_ms=task.timeout_ms,
        on_interrupt=task.on_interrupt,
        by=task.by,
        plan=plan._replace(project=None, run=None),
    )


def write_workflow(batch: BatchRequest) -> dict[str, Any]:
    values: dict[str, Any] = {"tasks": [write_request(request) for request in batch.tasks]}
    if batch.callback is not None:
        values["callback"] = batch.callback
    flow = (batch.flow or _FLOW)._asdict()
    values["flow"] = {n: value for n, value in flow.items() if value != getattr(_FLOW, n)}
    return values


def read_workflow(written: Mapping[str, Any], by: str) -> BatchRequest:
    """Read what `write_workflow` wrote."""
    flow = Flow(**written["flow"])
    tasks = tuple([read_request(each, by) for each in written["tasks"]])
    return BatchRequest(tasks, callback=written.get("callback"), by=by, flow=flow)
