"""Makes format_1_projects_made.jsonl: projects that were made with nothing on their lists, in format 1.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_projects_made.py \\
        > tests/eventlog/golden/format_1_projects_made.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e

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
)

if __name__ == "__main__":
    write(e.Record(seq, AT + seq * SECOND, event) for seq, event in enumerate(STORY, start=1))
