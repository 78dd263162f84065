"""How a shard does at this moment, for whoever watches over it.

Not held back until it is durable, and there also while nothing can be recorded: that is when it is
asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rota.actors.runtime import body_of
from rota.actors.webhook import WebhookActor

if TYPE_CHECKING:
    from rota.actors.system import Shard
    from rota.projections.state import State


class Callbacks(NamedTuple):
    """What is being delivered: how many wait for a place, how many are sent, since when at most."""

    waiting: int
    sending: int
    oldest_s: int


class Figures(NamedTuple):
    """A shard's condition; `state` is None while it is being rebuilt."""

    degraded: str
    phase: str
    is_stopping: bool
    durable_seq: int
    state: State | None
    callbacks: Callbacks | None
    """None while nobody delivers any."""


def figures_of(shard: Shard) -> Figures:
    return Figures(
        shard.degraded,
        shard.failover.phase.value,
        shard.stopping,
        shard.journal.durable_seq,
        shard.state if shard.failover.is_readable else None,
        _callbacks(shard),
    )


def _callbacks(shard: Shard) -> Callbacks | None:
    actor = body_of(shard.webhook)
    if not isinstance(actor, WebhookActor):
        return None
    receivers = actor.receivers
    return Callbacks(receivers.waiting, receivers.active, actor.oldest_s(shard.journal.now()))
