"""Requests that are kept, shown in the words of the body that they came with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rota.clock import rfc3339
from rota.http.project_models import PLAN_FIELDS, REQUEST_FIELDS

if TYPE_CHECKING:
    from rota.domain.intake import Request


def request_said(request: Request) -> dict[str, Any]:
    """Show what a request says, without its agent; what was not said is left out."""
    said: dict[str, Any] = {
        name: value
        for name, field in REQUEST_FIELDS.items()
        if (value := getattr(request, field)) is not None
    }
    plan = request.plan
    said |= {n: v for field, n in PLAN_FIELDS.items() if (v := getattr(plan, field)) is not None}
    for name in ("deadline", "notBefore"):
        if name in said:
            said[name] = rfc3339(said[name])
    if "retry" in said:
        said["retry"] = {_camel(name): value for name, value in said["retry"].items()}
    if plan.idempotency is not None:
        said["idempotencyKey"] = plan.idempotency
    if request.depends:
        said["dependsOn"] = list(request.depends)
    return said


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)
