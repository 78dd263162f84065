"""Which limit or pause holds a ready task, or keeps from a worker what it came for.

The dispatcher's own limits are asked, so the reason is the one that it goes by.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from rota.actors.dispatcher import DispatcherActor
from rota.actors.runtime import body_of
from rota.domain.commands import PULL
from rota.errors import StorageUnavailable

if TYPE_CHECKING:
    from rota.actors.system import Shard
    from rota.domain.task import Lane
    from rota.domain.wants import Filter, Wants
    from rota.sight.showing import Showing

LOOKED_MAX = 1000
"""So many lanes are looked at for the reason why a worker was given nothing."""


def why_held(shard: Shard, agent: str, lane: Lane) -> str | None:
    """Say what keeps ready tasks of a lane from a slot; None if nothing does."""
    paused = shard.state.control.why_paused(agent, lane[1])
    if paused is not None:
        return paused
    dispatcher = body_of(shard.dispatcher)
    if not isinstance(dispatcher, DispatcherActor):
        return None  # the log has failed, and nobody is served
    return dispatcher.why_held(agent, lane)


async def why_none(shard: Shard, showing: Showing, wants: Wants) -> str | None:
    """Say what keeps the tasks that a worker would take from it; None if none are held."""

    async def here() -> None:
        """Look at the present."""

    try:
        return await showing.shown(here, lambda _: _held_of(shard, wants))
    except StorageUnavailable:
        return None


def _held_of(shard: Shard, wants: Wants) -> str | None:
    orders = shard.state.backlog.orders
    lanes = (
        (each, agent, lane)
        for each in wants.filters
        for agent in each.agents or orders
        if agent in orders
        for lane in orders[agent].lanes
    )
    for wanted, agent, lane in islice(lanes, LOOKED_MAX):
        if _takes(wants, wanted, lane):
            held = why_held(shard, agent, lane)
            if held is not None:
                return held
    return None


def _takes(wants: Wants, wanted: Filter, lane: Lane) -> bool:
    of_type = wanted.types is None or lane[1] in wanted.types
    return lane[0] == PULL and of_type and wants.meets(lane[5])
