"""What handlers may do with schedules.

A token that is for some agents is for the schedules of those: others are not there for it. What a
schedule makes is for its agents alone, so whoever may submit for all of them may have it made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors import schedule_messages as sm

if TYPE_CHECKING:
    from rota.domain.events import ScheduleFired
    from rota.domain.schedule import Definition, Schedule
    from rota.http.bridge import Bridge


class SchedulesBridge:
    """The schedules' part of a bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._actor = bridge.shard.schedules

    async def of(self, name: str) -> Schedule:
        """Give a schedule of the caller's, as it is at this moment. Raises NotFound."""
        return await self._bridge.sight.schedules.find(name)

    async def create(self, name: str, wanted: Definition, by: str, *, paused: bool) -> bool:
        """Make a schedule; True if it is there already. Raises a RequestError."""
        known: bool = await self._bridge.ask(
            self._actor, lambda reply: sm.CreateSchedule(name, wanted, paused, by, reply)
        )
        return known

    async def change(self, name: str, changes: dict[str, Any], by: str) -> None:
        """Change a schedule. Raises a RequestError."""
        await self.of(name)
        await self._bridge.ask(
            self._actor, lambda reply: sm.ChangeSchedule(name, changes, by, reply)
        )

    async def steer(self, name: str, how: str, reason: str, by: str) -> None:
        """Pause, resume or delete a schedule. Raises NotFound."""
        await self.of(name)
        await self._bridge.ask(
            self._actor, lambda reply: sm.SteerSchedule(name, how, reason, by, reply)
        )

    async def run(self, name: str, by: str) -> ScheduleFired:
        """Have a schedule fire now; give what became of it. Raises NotFound."""
        await self.of(name)
        fired: ScheduleFired = await self._bridge.ask(
            self._actor, lambda reply: sm.RunSchedule(name, by, reply)
        )
        return fired
