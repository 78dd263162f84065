"""Makes format_1_dialects.jsonl: a workflow that came in by a dialect, in whose words it is told.

Run once, and kept to show how; the file is the contract.

    python tests/eventlog/golden/make_format_1_dialects.py > tests/eventlog/golden/format_1_dialects.jsonl
"""

from __future__ import annotations

from eventlog.golden.lines import SECOND, SETTINGS, write

from rota.domain import events as e

AT = 1_795_400_000_000_000
STORY: tuple[e.Event, ...] = (
    e.ServerStarted("0.2.0", SETTINGS),
    e.WorkflowSubmitted(
        "wfl_1", 0, "intake", open=True, callback="http://127.0.0.1:1/", dialect="automechanica"
    ),
    e.WorkflowSubmitted("wfl_2", 0, "plain", open=True),
    e.WorkflowClosed("wfl_1"),
)

if __name__ == "__main__":
    write(e.Record(seq, AT + seq * SECOND, event) for seq, event in enumerate(STORY, start=1))
