"""Makes format_1_priorities.jsonl: tasks that were given another priority, added to format 1.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_priorities.py > tests/eventlog/golden/format_1_priorities.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan

AT = 1_795_190_000_000_000
STORY: tuple[e.Event, ...] = (
    e.ServerStarted("0.7.0", SETTINGS),
    e.TaskSubmitted("tsk_1", "ann", "echo", "builtin", 1),
    e.TaskSubmitted("tsk_2", "ann", "echo", "builtin", 2),
    e.TaskSubmitted("tsk_3", "ann", "echo", "builtin", 3, plan=Plan(preempt=True)),
    e.TaskSubmitted("tsk_4", "bob", "echo", "builtin", 1, waits=["tsk_1"],
                    plan=Plan(depends={"tsk_1": "tsk_1"})),
    e.TaskReprioritised("tsk_2", "ann", 0, 2),
    e.TaskReprioritised("tsk_3", "ann", 7, 2),
    e.TaskReprioritised("tsk_4", "bob", 1, 2),
    e.TaskAssigned("tsk_2", "ann", 1),
    e.TaskReprioritised("tsk_2", "ann", 9, 0),
    e.AttemptInterrupted("tsk_2", "ann", 1, "shutdown"),
)  # fmt: skip

if __name__ == "__main__":
    write(e.Record(seq, AT + seq * SECOND, event) for seq, event in enumerate(STORY, start=1))
