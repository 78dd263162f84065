"""The facts about who is outside: workers that hold tasks, receivers of callbacks.

They are named among the others in events.py, which is what everybody imports.
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


class DeliverySucceeded(NamedTuple):
    """The callback was delivered."""

    task: str
    agent: str
    delivery: str
    number: int
    status: int


class DeliveryFailed(NamedTuple):
    """A try to deliver the callback failed; the next is due at `next_at`."""

    task: str
    agent: str
    delivery: str
    number: int
    status: int
    error: str
    next_at: int


class DeliveryAbandoned(NamedTuple):
    """The callback was given up."""

    task: str
    agent: str
    delivery: str
    number: int
    status: int
    error: str
