"""Requests that are kept to be submitted later: written out as plain values, and read back.

What is not said is not written. Who asked is not kept: who submits them says that.
"""

from __future__ import annotations

from typing import Any

from rota.domain.commands import Flow
from rota.domain.intake import BatchRequest, Request
from rota.domain.plan import NO_PLAN, Plan

_LEFT_OUT = frozenset({"by", "plan", "depends", "dedup", "usual", "wanted_id"})
_FLOW = Flow()


def written(request: Request) -> dict[str, Any]:
    """Write a request of one task, whose shape was checked."""
    values = {
        name: value
        for name, value in request._asdict().items()
        if name not in _LEFT_OUT and value != Request._field_defaults.get(name)
    }
    if request.depends:
        values["depends"] = list(request.depends)
    if request.plan != NO_PLAN:
        plan = request.plan._asdict()
        values["plan"] = {name: value for name, value in plan.items() if value is not None}
    return values


def read(values: dict[str, Any], by: str) -> Request:
    """Read what `written` wrote, in another's name; what is not known is left out."""
    known = {n: value for n, value in values.items() if n in Request._fields}
    known["depends"] = tuple(known.get("depends", ()))
    plan = {n: value for n, value in known.pop("plan", {}).items() if n in Plan._fields}
    return Request(**known, plan=Plan(**plan) if plan else NO_PLAN, by=by)


def written_workflow(batch: BatchRequest) -> dict[str, Any]:
    values: dict[str, Any] = {"tasks": [written(request) for request in batch.tasks]}
    if batch.callback is not None:
        values["callback"] = batch.callback
    flow = (batch.flow or _FLOW)._asdict()
    values["flow"] = {n: value for n, value in flow.items() if value != getattr(_FLOW, n)}
    return values


def read_workflow(values: dict[str, Any], by: str) -> BatchRequest:
    flow = {n: value for n, value in values.get("flow", {}).items() if n in Flow._fields}
    tasks = tuple([read(each, by) for each in values.get("tasks", ())])
    return BatchRequest(tasks, callback=values.get("callback"), by=by, flow=Flow(**flow))
