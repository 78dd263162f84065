"""The bodies of projects: what comes in, in both of their dialects, checked at the edge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    RootModel,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rota.config import BATCH_MAX, ID_CHARS_MAX
from rota.http.models import (
    ASKED,
    Action,
    AgentId,
    DedupBody,
    Dependencies,
    Key,
    Label,
    Moment,
    NativeBody,
    Reason,
    TaskFields,
    TaskId,
    TaskOptions,
    not_reserved,
    one_action,
)
from rota.http.submissions import deadline_us

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.domain.intake import Request

MANY_MAX = 100
"""So many projects are meant by one request at most."""
REQUEST_FIELDS = {
    "action": "action",
    "params": "params",
    "priority": "priority",
    "tabId": "tab",
    "ref": "ref",
    "callbackUrl": "callback",
    "deadline": "deadline",
    "timeoutMs": "timeout_ms",
    "onInterrupt": "on_interrupt",
}
"""What a body calls the fields of a request, and what a request does."""
PLAN_FIELDS = {"not_before": "notBefore", "retry": "retry", **ASKED}
"""What a plan calls its fields, and what a body does."""


def _project_id(text: str, info: ValidationInfo) -> str:
    if "/" in text or text in (".", ".."):
        msg = "must have no / and not be . or ..: it is a part of paths"
        raise ValueError(msg)
    return not_reserved(text, "projects", info)


ProjectId = Annotated[AgentId, AfterValidator(_project_id)]


class ProjectName(NativeBody):
    """What a project may be called."""

    projectId: ProjectId


class ItemBody(NativeBody, TaskOptions, TaskFields):
    """One task of a list: a body as for /v1/tasks."""

    agentId: AgentId | None = Field(None, description="whose queue it goes to; the project's id")
    dependsOn: Dependencies = Field([], description="refused: the list has an order")
    dedup: DedupBody | None = Field(None, description="refused")
    idempotencyKey: Key | None = Field(None, description="a repeat answers with the same task")
    before: TaskId | None = Field(None, description="the task that it goes before; else the end")

    _named = model_validator(mode="before")(one_action)


class ItemsBody(NativeBody):
    """Several tasks of a list: all of them are added, or none."""

    tasks: list[ItemBody] = Field(min_length=1, max_length=BATCH_MAX, fail_fast=True)
    agentId: AgentId | None = Field(None, description="for the tasks that name none")
    before: TaskId | None = Field(None, description="the task that they go before; else the end")
    idempotencyKey: Key | None = Field(None, description="a repeat answers with the same tasks")


class AddBody(RootModel[ItemBody | ItemsBody | list[ItemBody]]):
    """POST /projects/{id}/tasks: one task, or several."""


class ItemPatch(NativeBody, TaskOptions):
    """PATCH /projects/{id}/tasks/{task}: what is said changes, the rest stays."""

    action: Action | None = None
    tabId: Label | None = None
    ref: Label | None = None
    params: dict[str, Any] | None = None
    deadline: Moment | None = None
    before: TaskId | None = Field(None, description="its new place; null is the end")
    position: int | None = Field(None, ge=0, le=1 << 31, description="its new place; 0 is first")

    _named = model_validator(mode="before")(one_action)

    @field_validator("action")
    @classmethod
    def _not_null(cls, value: str | None) -> str:
        if value is None:
            msg = "must not be null"
            raise ValueError(msg)
        return value

    @field_validator("taskId", "onMissing", mode="before")
    @classmethod
    def _fixed(cls, value: Any) -> Any:
        del value
        msg = "cannot be changed"
        raise ValueError(msg)

    @model_validator(mode="after")
    def _makes_sense(self) -> ItemPatch:
        said = self.model_fields_set
        if {"before", "position"} <= said:
            msg = "give either before or position, not both"
            raise ValueError(msg)
        if not said:
            msg = "say what is to be changed"
            raise ValueError(msg)
        return self

    @property
    def moves(self) -> bool:
        return not self.model_fields_set.isdisjoint({"before", "position"})

    @property
    def place(self) -> str | int | None:
        return self.position if self.position is not None else self.before

    def change(self) -> Callable[[Request], Request] | None:
        """Give what changes a request as this says; None if it says nothing about that."""
        said, values = self.model_fields_set, self.__dict__
        mine = {field: values[n] for n, field in REQUEST_FIELDS.items() if n in said}
        if "deadline" in mine:
            mine["deadline"] = deadline_us(self.deadline)
        if mine.get("callback") == "":
            mine["callback"] = None
        made = self.plan()
        plan = {field: getattr(made, field) for field, n in PLAN_FIELDS.items() if n in said}
        if "delay_ms" in plan or "not_before" in plan:  # one of them takes the other's place
            plan = {"delay_ms": None, "not_before": None, **plan}
        if not mine and not plan:
            return None
        return lambda request: request._replace(**mine, plan=request.plan._replace(**plan))


class RunBody(NativeBody):
    """POST /projects/{id}/run."""

    mode: Literal["single", "loop"] = Field("single", description="one task, or until it is empty")
    taskId: Annotated[str, Field(max_length=ID_CHARS_MAX)] | None = Field(
        None, description="the one to begin with"
    )
    reason: Reason = ""


Several = Annotated[list[AgentId], Field(min_length=1, max_length=MANY_MAX, fail_fast=True)]


class RunManyBody(NativeBody):
    """POST /projects/run."""

    projects: Several
    mode: Literal["single", "loop"] = "single"
    reason: Reason = ""


class StopManyBody(NativeBody):
    """POST /projects/stop and /projects/force-stop."""

    projects: Several
    reason: Reason = ""
