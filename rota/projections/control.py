"""What people set: the limits in force, and what is paused: agents, types, the whole scheduler.

Limits come into the state by events only (`server_started`, `config_changed`), so that a replay
knows which limits held at any moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain.commands import Limits

if TYPE_CHECKING:
    from rota.domain import events as e
    from rota.domain.events import Record


class Control:
    """Limits and pauses."""

    def __init__(self) -> None:
        """Start with the documents' defaults and nobody paused."""
        self.limits = Limits()
        self.paused: dict[str, str] = {}
        self.paused_types: dict[str, str] = {}
        self.stopped: str | None = None

    def on_settings(self, record: Record) -> None:
        """Put the limits of a start or a change in force."""
        event: e.ServerStarted | e.ConfigChanged = record.event  # type: ignore[assignment]
        self.limits = limits_from(event.settings)

    def on_paused(self, record: Record) -> None:
        """Pause an agent."""
        event: e.AgentPaused = record.event  # type: ignore[assignment]
        self.paused[event.agent] = event.reason

    def on_resumed(self, record: Record) -> None:
        """Resume an agent."""
        event: e.AgentResumed = record.event  # type: ignore[assignment]
        self.paused.pop(event.agent, None)

    def on_type_paused(self, record: Record) -> None:
        """Pause a type."""
        event: e.TypePaused = record.event  # type: ignore[assignment]
        self.paused_types[event.type] = event.reason

    def on_type_resumed(self, record: Record) -> None:
        """Resume a type."""
        event: e.TypeResumed = record.event  # type: ignore[assignment]
        self.paused_types.pop(event.type, None)

    def on_stopped(self, record: Record) -> None:
        """Pause the scheduler."""
        event: e.SchedulerPaused = record.event  # type: ignore[assignment]
        self.stopped = event.reason

    def on_going(self, record: Record) -> None:
        """Resume the scheduler."""
        del record
        self.stopped = None

    def dump(self) -> dict[str, Any]:
        """Give everything for a snapshot."""
        return {
            "limits": limits_to(self.limits),
            "paused": self.paused,
            "pausedTypes": self.paused_types,
            "stopped": self.stopped,
        }

    def load(self, data: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        self.limits = limits_from(data["limits"])
        self.paused.update(data["paused"])
        self.paused_types.update(data["pausedTypes"])
        self.stopped = data["stopped"]


def limits_to(limits: Limits) -> dict[str, Any]:
    """Write limits as the `settings` of an event."""
    return {**limits._asdict(), "types": dict(limits.types)}


def limits_from(settings: dict[str, Any]) -> Limits:
    """Read limits from the `settings` of an event; unknown names are ignored."""
    known = {name: value for name, value in settings.items() if name in Limits._fields}
    known["types"] = tuple(sorted(known.get("types", {}).items()))
    return Limits(**known)
