"""Makes format_1_held.jsonl: tasks that are on a project's list again, in format 1.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_held.py > tests/eventlog/golden/format_1_held.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan

AT = 1_795_100_000_000_000
ECHO = {"agent": "p", "action": "echo", "priority": 2}
RUN = Plan(project="p", run="run-1")
LATER = AT + 3600 * SECOND
STORY: tuple[e.Event, ...] = (
    e.ServerStarted("0.2.0", {**SETTINGS, "run_timeout_ms": 60_000}),
    e.ProjectTaskAdded("p", "p", "tsk_1", ECHO),
    e.ProjectTaskAdded("p", "p", "tsk_2", ECHO),
    e.RunQueued("run-1", "p", "loop"),
    e.RunStarted("run-1", "p"),
    e.RunTaskSelected("run-1", "p", "tsk_1"),
    e.TaskSubmitted("tsk_1", "p", "echo", "builtin", 1, 2, plan=RUN),
    e.RunStopRequested("run-1", "p", "for lunch"),
    e.TaskHeld("tsk_1", "p", "p"),
    e.ProjectTaskAdded("p", "p", "tsk_1", ECHO, "tsk_2", held=True),
    e.RunEnded("run-1", "p", "completed", "stopped"),
    e.RunQueued("run-2", "p", "loop"),
    e.RunStarted("run-2", "p"),
    e.RunTaskSelected("run-2", "p", "tsk_1"),
    e.TaskReleased("tsk_1", "p", "project", "run-2"),
    e.TaskAssigned("tsk_1", "p", 1),
    e.TaskStarted("tsk_1", "p", 1),
    e.TaskFailed("tsk_1", "p", 1, "bad", "it broke"),
    e.RunEnded("run-2", "p", "failed", "task_failed", 0, "it broke"),
    e.TaskRevived("tsk_1", "p"),
    e.TaskHeld("tsk_1", "p", "p"),
    e.ProjectTaskAdded("p", "p", "tsk_1", ECHO, "tsk_2", held=True),
    e.RunQueued("run-3", "p", "loop", "tsk_1"),
    e.RunStarted("run-3", "p"),
    e.RunTaskSelected("run-3", "p", "tsk_1"),
    e.TaskDelayed("tsk_1", "p", LATER, "run-3"),
    e.RunStopRequested("run-3", "p", "no progress for 60000 ms", True, None, "run_timeout"),
    e.TaskHeld("tsk_1", "p", "p"),
    e.ProjectTaskAdded("p", "p", "tsk_1", ECHO, "tsk_2", held=True),
    e.RunEnded("run-3", "p", "failed", "run_timeout", 0, "no progress for 60000 ms"),
)

if __name__ == "__main__":
    write(e.Record(seq, AT + seq * SECOND, event) for seq, event in enumerate(STORY, start=1))
