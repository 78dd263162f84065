"""Makes format_1.jsonl: a small log with every kind of event of format 1.

Run once, when the format was made, and kept to show how. The file is the contract: it is not made
again when the code changes; a new version of a kind gets a golden file of its own beside it.

    PYTHONPATH=tests python tests/eventlog/golden/make_format_1.py > tests/eventlog/golden/format_1.jsonl

Each line holds a body as the log keeps it and its digest; the last line, the state they fold to.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from eventlog.golden.lines import HOOK, SETTINGS, write

from rota.domain import events as e
from rota.eventlog.codec import decode, encode
from rota.projections.state import State

TYPED: dict[str, Any] = {**SETTINGS, "types": {"browser_start": 5}}
AT = 1_772_971_500_000_000

STORY: tuple[tuple[e.Event, str, int], ...] = (
    (e.ServerStarted("0.1.0", TYPED), "", 0),
    (e.TaskSubmitted("tsk_a", "crawler", "echo", "builtin", 1), "ann", 0),
    (e.TaskAssigned("tsk_a", "crawler", 1), "", 2),
    (e.TaskStarted("tsk_a", "crawler", 1), "", 3),
    (e.TaskSucceeded("tsk_a", "crawler", 1, {"echo": {}, "n": 1.5, "u": "é\u2028"}), "", 3),
    (
        e.TaskSubmitted(
            "tsk_b",
            "writer",
            "click",
            "web",
            1,
            0,
            {"selector": "#go", "deep": [1, None, {"x": True}]},
            "pinchtab",
            "tab-7",
            "ref-9",
            HOOK,
            AT + 3_600_000_000,
            30_000,
            "retry",
        ),
        "",
        0,
    ),
    (
        e.TaskRejected(
            "tsk_c",
            "writer",
            "click",
            "queue_full",
            "rejected: agent queue full",
            1,
            {"k": "v"},
            "pinchtab",
            "tab-8",
            "ref-1",
            HOOK,
            AT + 60_000_000,
        ),
        "bob",
        0,
    ),
    (e.TaskAssigned("tsk_b", "writer", 1), "", 6),
    (e.TaskStarted("tsk_b", "writer", 1), "", 8),
    (e.AttemptInterrupted("tsk_b", "writer", 1, "server restarted"), "", 1),
    (e.TaskAssigned("tsk_b", "writer", 1), "", 6),
    (e.TaskStarted("tsk_b", "writer", 1), "", 11),
    (e.TaskFailed("tsk_b", "writer", 1, "http_500", "HTTP 500", {"status": 500}), "", 11),
    (e.DeliveryFailed("tsk_b", "writer", "dlv_13_tsk_b", 1, 503, "HTTP 503", AT + 9), "", 0),
    (e.DeliverySucceeded("tsk_b", "writer", "dlv_13_tsk_b", 2, 204), "", 0),
    (e.TaskSubmitted("tsk_d", "crawler", "sleep", "builtin", 1, callback=HOOK), "", 0),
    (e.TaskExpired("tsk_d", "crawler", "deadline", "deadline exceeded while queued"), "", 0),
    (e.DeliveryAbandoned("tsk_d", "crawler", "dlv_17_tsk_d", 6, 410, "HTTP 410"), "", 0),
    (e.AgentPaused("crawler", "night"), "ann", 0),
    (e.TaskSubmitted("tsk_e", "crawler", "echo", "builtin", 1), "", 0),
    (e.AgentResumed("crawler"), "ann", 0),
    (e.AgentPaused("writer"), "", 0),
    (e.TaskAssigned("tsk_e", "crawler", 1), "", 20),
    (e.TaskCancelled("tsk_e", "crawler", "assigned", "not needed"), "ann", 0),
    (e.ResultRefused("tsk_e", "crawler", 1, "succeeded"), "", 23),
    (e.TaskSubmitted("tsk_f", "crawler", "type_x", "pull", 1, 3), "", 0),
    (e.ConfigChanged({**TYPED, "inflight": 30}, ["inflight"], "file"), "", 0),
    (e.ActorFailed("DispatcherActor", "HeadChanged", "KeyError: 'x'"), "", 0),
    (e.TaskSubmitted("tsk_g", "writer", "echo", "builtin", 2, callback=HOOK), "", 0),
    (e.TaskAssigned("tsk_g", "writer", 1), "", 29),
    (e.TaskSucceeded("tsk_g", "writer", 1), "", 30),
    (e.ServerStopped("asked to stop"), "", 0),
)


def main() -> None:
    """Write the lines, and the state."""
    told = [
        e.Record(seq, AT + seq * 1_500, event, by, cause)
        for seq, (event, by, cause) in enumerate(STORY, start=1)
    ]
    write(told)
    state = State()
    for record in told:
        state.apply(decode(encode(record)))
    sys.stdout.write(json.dumps({"state": state.digest()}) + "\n")


if __name__ == "__main__":
    main()
