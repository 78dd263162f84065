"""Makes format_1_joins.jsonl: follow-ups that carry a workflow's id and do not count towards it.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_joins.py > tests/eventlog/golden/format_1_joins.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan

AT = 1_795_290_000_000_000
FLOW = Plan(workflow="wfl_1")
RULES = {
    "types": {
        "*": {"follow_up": {"type": "embed"}},
        "crop": {"executor": "builtin", "follow_up": {"type": "embed", "joins": True}},
        "plain": {"follow_up": {}},
    }
}
STORY: tuple[e.Event, ...] = (
    e.ServerStarted("0.2.0", SETTINGS, rules=RULES),
    e.WorkflowSubmitted("wfl_1", 2),
    e.TaskSubmitted("tsk_1", "ann", "echo", "builtin", 1, plan=FLOW),
    e.TaskSubmitted("tsk_2", "ann", "crop", "builtin", 2, plan=FLOW),
    e.TaskAssigned("tsk_1", "ann", 1),
    e.TaskSucceeded("tsk_1", "ann", 1),
    e.TaskSubmitted(
        "tsk_3", "ann", "embed", "pull", 2,
        plan=FLOW._replace(follows="tsk_1", follow_depth=1, uncounted=True),
    ),
    e.TaskAssigned("tsk_2", "ann", 1),
    e.TaskSucceeded("tsk_2", "ann", 1),
    e.TaskSubmitted(
        "tsk_4", "ann", "embed", "pull", 2, plan=FLOW._replace(follows="tsk_2", follow_depth=1)
    ),
    e.TaskFailed("tsk_3", "ann", 0, "bad_params", "nothing there"),
    e.TaskCancelled("tsk_4", "ann", "ready"),
    e.WorkflowEnded("wfl_1", "completed", ["tsk_1", "tsk_2", "tsk_4"], 2, 0, 1),
)  # fmt: skip

if __name__ == "__main__":
    write(e.Record(seq, AT + seq * SECOND, event) for seq, event in enumerate(STORY, start=1))
