"""The facts about a lease that has ended: what an auditor wants to know of its worker.

They are named among the others in events.py, which is what everybody imports. A grant is an
assignment; no heartbeat has a record of its own.
"""

from __future__ import annotations

from typing import NamedTuple


class LeaseExpired(NamedTuple):
    """A worker was silent for the whole of its lease; what becomes of the task follows.

    `seen_at` is when it was last heard of, `gap_ms` the longest silence, `extended` how often it
    was heard of in between: no heartbeat has a record of its own.
    """

    task: str
    agent: str
    attempt: int
    worker: str
    seen_at: int
    gap_ms: int
    extended: int


class LeaseEnded(NamedTuple):
    """A lease that was extended has ended in another way, `how`; the figures are as above."""

    task: str
    agent: str
    attempt: int
    worker: str
    how: str
    seen_at: int
    gap_ms: int
    extended: int
