"""The bodies and answers of /v1/schedules, checked at the edge and shown in /openapi.json."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator

from rota.calendars import CRON_CHARS_MAX, ZONE_CHARS_MAX
from rota.domain.schedule import KINDS
from rota.http.flow_models import WorkflowBody  # noqa: TC001 - pydantic reads it
from rota.http.models import Moment, NativeBody, SubmitBody, not_blank
from rota.http.project_models import ProjectId  # noqa: TC001 - pydantic reads it

JITTER_MS_MAX = 3_600_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        msg = "must be letters, digits and . _ : - only, beginning with a letter or digit"
        raise ValueError(msg)
    return text


Name = Annotated[str, StringConstraints(max_length=100), AfterValidator(_name)]
Cron = Annotated[str, StringConstraints(max_length=CRON_CHARS_MAX), AfterValidator(not_blank)]
Zone = Annotated[str, StringConstraints(max_length=ZONE_CHARS_MAX), AfterValidator(not_blank)]
CatchUp = Literal["none", "last", "all"]
Overlap = Literal["skip", "queue", "cancel"]
Kind = Literal["task", "workflow", "project"]
JitterMs = Annotated[int, Field(ge=0, le=JITTER_MS_MAX)]


class ProjectStart(NativeBody):
    """A run of a project."""

    id: ProjectId
    mode: Literal["single", "loop"] = Field("single", description="one task, or until it is empty")


class Targets(NativeBody):
    """What a schedule makes: one of these."""

    task: SubmitBody | None = Field(None, description="a body as for POST /v1/tasks")
    workflow: WorkflowBody | None = Field(None, description="a body as for POST /v1/workflows")
    project: ProjectStart | None = Field(None, description="starts a run of it")

    def targets(self) -> list[str]:
        return [kind for kind in KINDS if getattr(self, kind) is not None]


class ScheduleBody(Targets):
    """POST /v1/schedules."""

    name: Name
    cron: Cron = Field(description="five fields, or @daily and the like")
    timezone: Zone = Field("UTC", description="such as Europe/Berlin")
    catchUp: CatchUp = Field("none", description="of what was missed while the server was away")
    overlap: Overlap = Field("skip", description="when what it made last has not ended")
    paused: bool = False
    jitterMs: JitterMs | None = Field(None, description="fires up to so much later, by chance")
    startAt: Moment | None = Field(None, description="RFC 3339; no moment before it")
    endAt: Moment | None = Field(None, description="RFC 3339; no moment after it")

    @model_validator(mode="after")
    def _one_target(self) -> ScheduleBody:
        if len(self.targets()) != 1:
            msg = f"give one of {', '.join(KINDS)}"
            raise ValueError(msg)
        return self


class SchedulePatch(Targets):
    """PATCH /v1/schedules/{name}: what is given is changed; null takes a limit away."""

    cron: Cron | None = None
    timezone: Zone | None = None
    catchUp: CatchUp | None = None
    overlap: Overlap | None = None
    jitterMs: JitterMs | None = None
    startAt: Moment | None = None
    endAt: Moment | None = None

    @model_validator(mode="after")
    def _one_target(self) -> SchedulePatch:
        if len(self.targets()) > 1:
            msg = f"give one of {', '.join(KINDS)}"
            raise ValueError(msg)
        return self


class ScheduleRow(BaseModel):
    """A schedule in a list."""

    name: str
    state: Literal["active", "paused", "over", "ahead"] = Field(
        description="ahead: the clock was set back to before moments that have fired already"
    )
    cron: str
    timezone: str
    catchUp: CatchUp
    overlap: Overlap
    makes: Kind
    agents: list[str] = Field(description="whom that is for")
    by: str = Field(description="who said last what it is")
    jitterMs: int | None = None
    startAt: str | None = None
    endAt: str | None = None
    nextAt: str | None = Field(None, description="the moment that comes next by the calendar")
    dueAt: str | None = Field(None, description="when it is acted on: later by the jitter")
    firedUntil: str | None = Field(None, description="when ahead: moments up to here have fired")
    lastFiredAt: str | None = None
    lastMoment: str | None = None
    lastOutcome: Literal["started", "skipped", "queued"] | None = None
    lastId: str | None = Field(None, description="the task, workflow or run that it made last")
    waiting: int = Field(description="moments that wait until that has ended")
    fired: int
    skipped: int
    missed: int
    pauseReason: str | None = None
    createdAt: str


class ScheduleView(ScheduleRow):
    """A schedule, what it makes, and the next five moments."""

    task: dict[str, Any] | None = None
    workflow: dict[str, Any] | None = None
    project: dict[str, Any] | None = None
    upcoming: list[str]
    known: bool | None = Field(None, description="it was there already, just so")


class SchedulePage(BaseModel):
    """Some schedules, by name."""

    schedules: list[ScheduleRow]
    count: int
    nextCursor: str | None = None


class ScheduleGone(BaseModel):
    """The schedule was deleted."""

    name: str
    deleted: bool


class FiringView(BaseModel):
    """What became of one moment, or of several that were missed."""

    seq: int | None = None
    at: str | None = None
    outcome: Literal["started", "skipped", "queued", "missed"]
    moment: str
    lastMoment: str | None = Field(None, description="of several that were missed")
    missed: int | None = None
    more: bool | None = Field(None, description="there were more than could be counted")
    id: str | None = Field(None, description="the task, workflow or run that it made")
    reason: str | None = None
    manual: bool | None = None
    late: bool | None = None
    waited: bool | None = Field(None, description="it was queued before")


class FiringPage(BaseModel):
    """Some firings of a schedule, oldest first."""

    firings: list[FiringView]
    count: int
    nextCursor: str | None = None
