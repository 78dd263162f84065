"""Decide: deliver a callback again, back off, or give up.

A delivery has one id for its whole life, so that a receiver can tell a repeat. The delay before
try n+1 is 4^(n-1) seconds, at most an hour; a receiver's `Retry-After` lengthens it. A receiver
that answers 410 and an address that may not be called are given up at once.
"""

from __future__ import annotations

from typing import NamedTuple

from rota.domain import events as e

BASE_DELAY_S = 1.0
DELAY_MAX_S = 3600.0
ESCALATED = ".escalated"
"""Follows a workflow's id where its escalation is told of, not its end."""


class DeliveryReport(NamedTuple):
    """What came of one try; `status` is 0 when there was no answer."""

    ok: bool
    status: int = 0
    error: str = ""
    retry_after_s: float | None = None
    final: bool = False
    duration_ms: int = 0


class Delivery:
    """A callback that is owed to somebody for the end of a task or batch at `seq`, at `since`."""

    __slots__ = ("agent", "callback", "due_at", "id", "seq", "since", "task", "tries")

    def __init__(
        self,
        seq: int,
        task: str,
        agent: str,
        callback: str,
        since: int,
        due_at: int | None = None,
        tries: int = 0,
    ) -> None:
        self.seq = seq
        self.id = delivery_id(seq, task)
        self.task = task
        self.agent = agent
        self.callback = callback
        self.since = since
        self.due_at = since if due_at is None else due_at
        self.tries = tries


DELIVERY = "dlv_"


def delivery_id(seq: int, subject: str) -> str:
    """Name the delivery that the end of a task or batch at `seq` owes: alike in every replay."""
    return f"{DELIVERY}{seq}_{subject}"


def seq_of(name: str) -> int:
    """Give the seq of the end that a delivery was named after."""
    return int(name.split("_", 2)[1])


def delay_s(tries: int) -> float:
    """Give the pause after the `tries`-th try."""
    return float(min(BASE_DELAY_S * 4.0 ** min(tries - 1, 10), DELAY_MAX_S))


def decide_delivery(
    delivery: Delivery, report: DeliveryReport, tries_max: int, now: int
) -> e.DeliverySucceeded | e.DeliveryFailed | e.DeliveryAbandoned:
    number = delivery.tries + 1
    head = (delivery.task, delivery.agent, delivery.id, number, report.status)
    if report.ok:
        return e.DeliverySucceeded(*head)
    if report.final or number >= tries_max:
        return e.DeliveryAbandoned(*head, report.error)
    pause = max(delay_s(number), min(report.retry_after_s or 0.0, DELAY_MAX_S))
    return e.DeliveryFailed(*head, report.error, now + int(pause * 1_000_000))
