"""Makes format_1_flows.jsonl: workflows, follow-ups and edited revivals, added to format 1.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_flows.py > tests/eventlog/golden/format_1_flows.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import HOOK, SECOND, SETTINGS, write

from rota.domain import events as e
from rota.domain.plan import Plan

AT = 1_794_990_000_000_000
ESCALATE = {"task": {"agent": "boss", "action": "look", "params": {"of": "{{workflow.id}}"}}}
FLOW = Plan(workflow="wfl_1")
RULES = {"types": {"echo": {"executor": "builtin", "follow_up": {"type": "embed"}}}}
RESTORED = {"id": "tsk_9", "agent": "ann", "action": "echo", "executor": "pull", "state": "failed"}
OLD = {"id": "wfl_9", "tasks": ["tsk_9"], "fates": {"failed": 1}, "finished_at": AT,
       "finished_seq": 1, "ended_as": "failed", "failure": {"count": 1}}  # fmt: skip
STORY: tuple[e.Event, ...] = (
    e.ServerStarted("0.6.0", SETTINGS, rules=RULES),
    e.WorkflowSubmitted(
        "wfl_1", 2, "nightly", True, {"count": 1}, "escalate", ESCALATE, HOOK, "key", "digest"
    ),
    e.TaskSubmitted("tsk_1", "ann", "echo", "builtin", 1, plan=FLOW),
    e.TaskSubmitted("tsk_2", "ann", "fail", "builtin", 2, plan=FLOW),
    e.TaskSubmitted(
        "tsk_3", "bob", "echo", "builtin", 3, waits=["tsk_2"],
        plan=FLOW._replace(depends={"tsk_2": "tsk_2"}),
    ),
    e.TaskAssigned("tsk_1", "ann", 1),
    e.TaskSucceeded("tsk_1", "ann", 1, {"part": 7}),
    e.TaskSubmitted(
        "tsk_4", "ann", "embed", "pull", 3, params={"part": 7},
        plan=FLOW._replace(follows="tsk_1", follow_depth=1),
    ),
    e.TaskAssigned("tsk_2", "ann", 1),
    e.TaskFailed("tsk_2", "ann", 1, "asked_to_fail", "failed as asked"),
    e.TaskCancelled("tsk_3", "bob", "blocked", "dependency tsk_2 failed", "dependency_failed"),
    e.WorkflowTripped("wfl_1", "escalate", 1, 4, "tsk_5"),
    e.TaskSubmitted("tsk_5", "boss", "look", "pull", 3, params={"of": "wfl_1"}),
    e.WorkflowPaused("wfl_1", "hold on"),
    e.WorkflowResumed("wfl_1"),
    e.TaskRevived("tsk_2", "ann", params={"better": True}, edited=True),
    e.TaskRevived("tsk_3", "bob", waits=["tsk_2"]),
    e.WorkflowClosed("wfl_1"),
    e.WorkflowCancelled("wfl_1", "no longer needed"),
    e.TaskCancelled("tsk_2", "ann", "ready", "no longer needed", "workflow_cancelled"),
    e.TaskCancelled("tsk_3", "bob", "blocked", "no longer needed", "workflow_cancelled"),
    e.TaskCancelled("tsk_4", "ann", "ready", "no longer needed", "workflow_cancelled"),
    e.WorkflowEnded(
        "wfl_1", "cancelled", ["tsk_1", "tsk_2", "tsk_3", "tsk_4"], 1, 0, 3, "escalate"
    ),
    e.TaskRevived(
        "tsk_9", "ann", {**RESTORED, "plan": list(FLOW._replace(workflow="wfl_9"))},
        restored_workflow=OLD,
    ),
)  # fmt: skip

if __name__ == "__main__":
    write(e.Record(seq, AT + seq * SECOND, event) for seq, event in enumerate(STORY, start=1))
