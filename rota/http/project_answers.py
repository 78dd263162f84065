"""The shapes of projects that go out, for /openapi.json."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

UNCONFIRMED = "what was cut off, but may still be worked on: nobody has said that it stopped"


class ProjectTaskAdded(BaseModel):
    """The task is on the list; several are in `tasks`."""

    projectId: str
    taskId: str | None = None
    state: str | None = None
    waitReason: str | None = Field(
        None, description="why it will wait when its turn comes: a pause, or that nobody runs it"
    )
    idempotent: bool | None = Field(None, description="the key stood for this already")
    tasks: list[dict[str, Any]] | None = None


class ProjectTaskState(BaseModel):
    """What became of a task of a list."""

    projectId: str
    taskId: str
    state: str


class ListedTask(BaseModel, extra="allow"):
    """A task of a list as it was asked for, or how it ended."""

    projectId: str
    taskId: str
    state: str
    position: int | None = Field(description="its place; null for what runs or was done")


class ProjectTaskPage(BaseModel):
    """What is to come, in order; what runs; and what was done lately."""

    projectId: str
    tasks: list[dict[str, Any]]
    count: int
    remaining: int
    current: dict[str, Any] | None
    done: list[dict[str, Any]]
    nextCursor: str | None = None


class QueueStatus(BaseModel):
    """What a project is doing, or how its last run ended."""

    isRunning: bool
    mode: Literal["single", "loop"] | None
    currentRunId: str | None
    startedAt: str | None
    shouldStop: bool
    stoppedAt: str | None
    lastError: str | None
    stopReason: str | None
    currentTaskId: str | None
    completed: int = Field(description="of the run, or of the last one")
    remaining: int


class ProjectFigures(BaseModel):
    """What the runs of a project come to."""

    starts: int
    completed: int
    failed: int
    totalMs: int
    meanMs: int | None
    longestMs: int
    stopReasons: dict[str, int]


class RunView(BaseModel):
    """One start of a project."""

    runId: str
    projectId: str
    mode: Literal["single", "loop"]
    state: Literal["pending", "in_progress", "completed", "failed"]
    taskId: str | None = Field(description="the one that it was told to begin with")
    currentTaskId: str | None
    shouldStop: bool
    createdAt: str
    startedAt: str | None
    stoppedAt: str | None
    durationMs: int | None
    completed: int
    stopReason: str | None
    error: str | None


class RunTasksView(RunView):
    """A run with what it has worked on."""

    tasks: list[str] = Field(description="its tasks in order, the first 1,000")


class ProjectRow(BaseModel):
    """A project in a list."""

    projectId: str
    createdAt: str
    status: QueueStatus
    figures: ProjectFigures


class ProjectView(ProjectRow):
    """A project with its last runs, newest first."""

    runs: list[RunView]


class ProjectPage(BaseModel):
    """Some projects, by name."""

    projects: list[ProjectRow]
    count: int
    nextCursor: str | None = None


class ProjectGone(BaseModel):
    """The project is no more."""

    projectId: str
    state: str
    removed: int = Field(description="how many tasks were on its list")


class RunPage(BaseModel):
    """The last runs of a project, newest first."""

    projectId: str
    runs: list[RunView]
    count: int


class RunStarted(BaseModel):
    """The run was started; it is pending while too many others are in progress."""

    success: bool
    runId: str
    projectId: str
    mode: str
    state: str


class QueueStopped(BaseModel):
    """No other task will begin."""

    success: bool


class StillRunning(BaseModel):
    """What a force-stop has not ended yet."""

    runId: str
    taskId: str | None


class QueueKilled(BaseModel):
    """What was cut off, and what is not gone yet."""

    success: bool
    killedRuns: list[str]
    stillRunning: list[StillRunning]
    unconfirmed: list[StillRunning] | None = Field(None, description=UNCONFIRMED)


class ProjectAnswer(BaseModel):
    """What became of one of several: what is answered for it alone, or why it was refused."""

    projectId: str
    success: bool
    runId: str | None = None
    mode: str | None = None
    state: str | None = None
    killedRuns: list[str] | None = None
    stillRunning: list[StillRunning] | None = None
    unconfirmed: list[StillRunning] | None = Field(None, description=UNCONFIRMED)
    error: str | None = Field(None, description="a sentence; under /projects what happened")
    message: str | None = Field(None, description="under /projects: a sentence")
    code: str | None = None
    retryable: bool | None = None
    details: dict[str, Any] | None = None
    requestId: str | None = None


class EachProject(BaseModel):
    """What became of each project that was named, in their order."""

    projects: list[ProjectAnswer]
    success: bool = Field(description="whether it was so for all")
