"""Makes format_1_projects_made.jsonl: empty projects, and records that say whose the tasks are.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_projects_made.py \\
        > tests/eventlog/golden/format_1_projects_made.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan

AT = 1_795_400_000_000_000
STORY: tuple[e.Event, ...] = (
    e.ServerStarted("0.2.0", SETTINGS),
    e.ProjectCreated("p"),
    e.ProjectCreated("q"),
    e.ProjectTaskAdded("p", "p", "tsk_1", {"agent": "p", "action": "echo", "priority": 2}),
    e.RunQueued("run-1", "q", "loop"),
    e.RunStarted("run-1", "q"),
    e.RunEnded("run-1", "q", "completed", "empty"),
    e.ProjectDeleted("q"),
    e.RunQueued("run-2", "p", "single", "tsk_1", "", "p"),
    e.RunStarted("run-2", "p"),
    e.RunTaskSelected("run-2", "p", "tsk_1", "p"),
    e.TaskSubmitted("tsk_1", "p", "echo", "builtin", 1, 2, plan=Plan(project="p", run="run-2")),
    e.TaskExpired("tsk_1", "p", "queue_timeout", "too late"),
    e.RunEnded("run-2", "p", "failed", "task_failed", 0, "too late", "p"),
    e.ProjectTaskAdded("p", "p", "tsk_2", {"agent": "p", "action": "echo"}),
    e.ProjectTaskAdded(
        "q", "p", "tsk_3", {"agent": "q", "action": "echo"}, "tsk_2", before_agent="p"
    ),
    e.ProjectTaskMoved("p", "p", "tsk_2", "tsk_3", "q"),
)

if __name__ == "__main__":
    write(e.Record(seq, AT + seq * SECOND, event) for seq, event in enumerate(STORY, start=1))
