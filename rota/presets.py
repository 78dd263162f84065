"""Ready-made settings: the defaults of each document that rota stands in for.

A preset lies under the configuration file: what the file says goes before it, key by key. Several
can be laid over each other, the later over the earlier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.errors import ConfigError
from rota.wording import guess

if TYPE_CHECKING:
    from collections.abc import Iterator

TRANSIENT = ["timeout", "connection", "status:429", "status:503", "code:resource_busy"]


AUTOMECHANICA_RETRY = {
    "kind": "quadratic",
    "baseMs": 5000,
    "jitterMs": 0,
    "maxMs": 3_600_000,
    "maxAttempts": 3,
}
"""attempts squared times five seconds: 5, 20, 45."""


EMBEDDING_JOBS = {
    "type": "embedding_jobs",
    "agent": "EmbeddingAgent",
    "priority": 3,
    "params": {
        "task_id": "{{task.id}}",
        "agent_name": "{{task.agent}}",
        "task_type": "{{task.type}}",
        "payload": "{{task.params}}",
        "result": "{{result}}",
    },
}
"""The entry that every task leaves behind as it completes, for whoever embeds it."""


def _job(
    timeout_s: int,
    retries: int,
    retry_on: list[str] | None = None,
    *,
    queue_s: int = 300,
    at_once: int | None = None,
    timeout_s_max: int | None = None,
) -> dict[str, Any]:
    """Describe a type of job as BrowserManager's tables do."""
    kind: dict[str, Any] = {
        "executor": "pull",
        "timeoutMs": timeout_s * 1000,
        "queueTimeoutMs": queue_s * 1000,
        "retry": {
            "kind": "exponential",
            "baseMs": 1000,
            "multiplier": 2.0,
            "jitterMs": 1000,
            "maxMs": 60_000,
            "maxAttempts": retries + 1,
            "retryOn": TRANSIENT if retry_on is None else retry_on,
        },
    }
    if at_once is not None:
        kind["maxConcurrent"] = at_once
    if timeout_s_max is not None:
        kind["timeoutMsMax"] = timeout_s_max * 1000
    return kind


PRESETS: dict[str, dict[str, Any]] = {
    "pinchtab": {
        "scheduler": {
            "strategy": "fair-fifo",
            "maxQueueSize": 1000,
            "maxPerAgent": 100,
            "maxInflight": 20,
            "maxPerAgentInflight": 10,
            "resultTTLSec": 300,
            "workerCount": 4,
        },
    },
    "browseros": {
        "scheduler": {"strategy": "priority-fifo", "resultTTLSec": 30 * 24 * 3600},
        "browseros": {"maxConcurrent": 1, "timeoutMs": 120_000, "timeoutMsMax": 600_000},
    },
    "browsermanager": {
        "scheduler": {
            "maxQueueSize": 500,
            "maxPerAgent": 500,
            "maxInflight": 20,
            "maxPerAgentInflight": 20,
            "workerCount": 20,
            "maxPerKey": 3,
            "resultTTLSec": 24 * 3600,
        },
        "agent": {"maxConcurrentBrowsers": 20},
        "types": {
            "browser_start": _job(
                30, 2, ["code:browser_crashed", "code:port_bind_failed", *TRANSIENT], at_once=5
            ),
            "browser_stop": _job(15, 3, ["code:still_running", *TRANSIENT], queue_s=60, at_once=10),
            "browser_stop_all": _job(30, 1),
            "script_run": _job(300, 1, ["timeout"], queue_s=600, timeout_s_max=3600),
            "cache_clear_local": _job(60, 3, ["code:file_locked", *TRANSIENT], at_once=10),
            "proxy_test": _job(
                15, 2, ["timeout", "connection", "code:connection_timeout"], queue_s=60, at_once=20
            ),
            "profile_clone": _job(120, 1),
            "db_migration": _job(60, 0, []),
            "recycle_bin_cleanup": _job(300, 1),
        },
        "browsermanager": {
            "routes": {
                "/api/env/start": "browser_start",
                "/api/env/stop": "browser_stop",
                "/api/env/stop-all": "browser_stop_all",
                "/api/env/clone": "profile_clone",
                "/api/env/clear-cache": "cache_clear_local",
                "/api/script/run": "script_run",
                "/api/proxy/test": "proxy_test",
            }
        },
    },
    "projects": {"projects": {"maxConcurrent": 5}, "scheduler": {"workerCount": 5}},
    "automechanica": {
        "scheduler": {"strategy": "priority-fifo"},
        "defaults": {"retry": AUTOMECHANICA_RETRY},
        "types": {"*": {"followUp": EMBEDDING_JOBS}},
    },
}


def layered(data: dict[str, Any], presets: tuple[str, ...] = ()) -> dict[str, Any]:
    """Lay a file over the presets that it, or the caller, names. Raises ConfigError.

    Its keys are spelt as they are here (rota.setting_names), or they would lie beside.
    """
    named = data.get("presets", data.get("preset", ()))
    if not isinstance(named, str | list | tuple) or not all(isinstance(n, str) for n in named):
        msg = "presets: must be a name, or a list of names"
        raise ConfigError(msg, hint=f"use {', '.join(PRESETS)}")
    names = [*presets, *([named] if isinstance(named, str) else named)]
    if not names:
        return data
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(names):
        if name not in PRESETS:
            msg = f"there is no preset {str(name)[:100]!r}{guess(str(name)[:100], PRESETS)}"
            raise ConfigError(msg, hint=f"use {', '.join(PRESETS)}")
        merged = _over(merged, PRESETS[name])
    rest = {key: value for key, value in data.items() if key != "preset"}
    merged = _over(merged, rest)
    merged["presets"] = list(dict.fromkeys(names))
    return merged


def conflicts(names: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Give each setting that two of these presets set to different values.

    Each comes with the preset that sets it before, and the later one, whose value holds.
    """
    said: dict[str, tuple[str, Any]] = {}
    for name in names:
        for key, value in flat(PRESETS[name]):
            before, old = said.get(key, (name, value))
            if old != value:
                yield key, before, name
            said[key] = name, value


def flat(table: dict[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    """Give the settings of a table by the path of their keys."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{where}{key}.")
        else:
            yield where + key, value


def _over(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Lay one table over another, key by key."""
    merged = dict(under)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = (
            _over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return merged
