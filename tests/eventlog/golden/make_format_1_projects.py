"""Makes format_1_projects.jsonl: lists of projects and the runs that work through them, in format 1.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_projects.py > tests/eventlog/golden/format_1_projects.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan

AT = 1_795_000_000_000_000
ECHO = {"agent": "p", "action": "echo", "params": {"n": 1}, "plan": {"delay_ms": 5}}
RUN = Plan(project="p", run="run-1")
STORY: tuple[e.Event, ...] = (
    e.ServerStarted("0.9.0", SETTINGS),
    e.ProjectTaskAdded("p", "p", "tsk_1", ECHO),
    e.ProjectTaskAdded("p", "p", "tsk_2", ECHO, "tsk_1"),
    e.ProjectTaskEdited("p", "p", "tsk_1", {"agent": "p", "action": "sleep"}),
    e.ProjectTaskMoved("p", "p", "tsk_1", "tsk_2"),
    e.ProjectTaskAdded("p", "p", "tsk_3", ECHO),
    e.ProjectTaskRemoved("p", "p", "tsk_3", "not needed"),
    e.RunQueued("run-1", "p", "loop", "tsk_1", "before lunch"),
    e.RunStarted("run-1", "p", "0 were in progress of 5 that may be"),
    e.RunTaskSelected("run-1", "p", "tsk_1"),
    e.TaskSubmitted("tsk_1", "p", "sleep", "builtin", 1, plan=RUN),
    e.TaskAssigned("tsk_1", "p", 1),
    e.TaskStarted("tsk_1", "p", 1),
    e.TaskSucceeded("tsk_1", "p", 1),
    e.RunTaskSelected("run-1", "p", "tsk_2"),
    e.TaskSubmitted("tsk_2", "p", "echo", "builtin", 1, plan=RUN),
    e.RunStopRequested("run-1", "p", "for lunch"),
    e.TaskCancelled("tsk_2", "p", "ready", "run run-1 was stopped", "project_stopped"),
    e.ProjectTaskAdded("p", "p", "tsk_4", ECHO, None, "tsk_2"),
    e.RunEnded("run-1", "p", "completed", "stopped", 1),
    e.RunQueued("run-2", "p", "single"),
    e.RunStarted("run-2", "p"),
    e.RunTaskSelected("run-2", "p", "tsk_4"),
    e.TaskSubmitted("tsk_4", "p", "echo", "builtin", 1, plan=RUN._replace(run="run-2")),
    e.TaskAssigned("tsk_4", "p", 1),
    e.TaskStarted("tsk_4", "p", 1),
    e.RunStopRequested("run-2", "p", "now", True, ["tsk_4"]),
    e.TaskCancelled("tsk_4", "p", "running", "run run-2 was force-stopped", "force_stopped"),
    e.RunEnded("run-2", "p", "failed", "force_stopped", 0, "run run-2 was force-stopped"),
    e.ProjectTaskAdded("q", "q", "tsk_5", {"agent": "q", "action": "echo"}),
    e.ProjectDeleted("q", "moved elsewhere"),
)

if __name__ == "__main__":
    write(e.Record(seq, AT + seq * SECOND, event) for seq, event in enumerate(STORY, start=1))
