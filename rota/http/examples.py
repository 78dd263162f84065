"""An example for each body that a route takes, for /openapi.json and /docs.

A test sends each of them to a server, which takes it.
"""

from __future__ import annotations

from typing import Any

_TASK: dict[str, Any] = {"agentId": "crawler-1", "action": "echo", "params": {"text": "hello"}}
_TOKEN = 12
_FILTER: dict[str, Any] = {"agentId": "crawler-1", "olderThanMs": 60_000}

EXAMPLES: dict[str, dict[str, Any]] = {
    "SubmitBody": {**_TASK, "priority": "high", "idempotencyKey": "order-4711"},
    "ReasonBody": {"reason": "the site is down"},
    "LogBody": {"lines": ["page 3 of 7"], "level": "info"},
    "ProgressBody": {"progress": {"done": 3, "of": 7}},
    "BatchBody": {
        "agentId": "crawler-1",
        "tasks": [
            {"ref": "fetch", "action": "echo", "params": {"url": "https://example.com"}},
            {"action": "echo", "dependsOn": ["ref:fetch"]},
        ],
    },
    "WorkflowBody": {
        "name": "report",
        "agentId": "crawler-1",
        "tasks": [
            {"ref": "fetch", "action": "echo", "params": {"text": "hello"}},
            {"action": "echo", "params": {"all": "{{fetch}}"}, "dependsOn": ["ref:fetch"]},
        ],
        "onFailure": "cancel",
    },
    "ReloadBody": {"scheduler": {"maxInflight": 50}},
    "TokenBody": {"name": "crawler", "role": "submit", "agents": ["crawler-1"]},
    "PriorityBody": {"priority": "high"},
    "CancelManyBody": {**_FILTER, "state": ["ready"], "reason": "not needed any more"},
    "RetryManyBody": {"agentId": "crawler-1", "code": "timeout", "dryRun": True},
    "ReprioritiseManyBody": {**_FILTER, "priority": "low"},
    "DeclareBody": {
        "types": [{"type": "crawl", "retry": {"maxAttempts": 3}, "timeoutMs": 60_000}],
    },
    "LeaseBody": {"workerId": "w-1", "types": ["crawl"], "labels": ["gpu"], "waitMs": 1000},
    "SettleBody": {
        "workerId": "w-1",
        "outcomes": [
            {
                "leaseId": "tsk_0nixkM5T.12",
                "token": _TOKEN,
                "outcome": "complete",
                "result": {"pages": 7},
            }
        ],
        "lease": {"types": ["crawl"], "max": 1},
    },
    "HeartbeatBody": {"token": _TOKEN, "progress": {"done": 3, "of": 7}},
    "CompleteBody": {"token": _TOKEN, "result": {"pages": 7}},
    "FailBody": {"token": _TOKEN, "error": "the site answered 503", "code": "status_503"},
    "HeldBody": {"token": _TOKEN},
    "ReviveBody": {"params": {"text": "hello"}, "dependents": True},
    "ReviveManyBody": {"agentId": "crawler-1", "code": "timeout", "limit": 100},
    "RunManyBody": {"projects": ["site", "shop"], "mode": "loop"},
    "StopManyBody": {"projects": ["site", "shop"], "reason": "maintenance"},
    "AddBody": {"action": "echo", "params": {"text": "build the index"}},
    "ItemPatch": {"priority": "high"},
    "RunBody": {"mode": "loop"},
    "ScheduleBody": {
        "name": "nightly",
        "cron": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "task": _TASK,
    },
    "SchedulePatch": {"cron": "30 3 * * *"},
    "BareBody": {"agentId": "crawler-1", "action": "click", "tabId": "tab-1", "ref": "e5"},
    "BareBatch": {
        "agentId": "crawler-1",
        "tasks": [{"action": "navigate", "params": {"url": "https://example.com"}}],
    },
    "JobBody": {"jobType": "script_run", "profileId": "p-1", "payload": {"script": "login"}},
    "EnvBody": {"payload": {"profile": "p-1"}},
    "AutoMechanicaBody": {
        "agent_name": "FitmentAgent",
        "task_type": "generate_fitment",
        "payload": {"sku": "A-17"},
        "max_attempts": 3,
    },
    "AutoMechanicaLease": {"worker_id": "host-17-4242", "agent_names": ["FitmentAgent"]},
    "AutoMechanicaHeartbeat": {"token": _TOKEN, "lease_ms": 30_000},
    "AutoMechanicaComplete": {"token": _TOKEN, "result": {"fits": True}},
    "AutoMechanicaFail": {
        "token": _TOKEN,
        "error_info": {"code": "no_such_part", "message": "the supplier does not know A-17"},
    },
    "AutoMechanicaRelease": {"token": _TOKEN},
    "AutoMechanicaRevive": {"payload": {"sku": "A-18"}},
    "AutoMechanicaWorkflow": {
        "name": "intake",
        "agent_name": "FitmentAgent",
        "tasks": [
            {"ref": "fit", "task_type": "generate_fitment", "payload": {"sku": "A-17"}},
            {"agent_name": "SeoAgent", "task_type": "refresh_seo", "depends_on": ["ref:fit"]},
        ],
        "failure_threshold": {"count": 2},
        "on_failure": "cancel",
    },
}
"""By the name of the body's model."""
