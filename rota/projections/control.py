"""What people set: limits and rules in force, and what is paused: agents, types, the scheduler.

Limits and the rules of intake come into the state by events only (`server_started`,
`config_changed`), so that a replay knows which of them held at any moment. Rules are recorded when
they change; a log that was written before there were any has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain.commands import Limits
from rota.domain.declared import Declarations, Declared, key_of
from rota.domain.intake import Rules

if TYPE_CHECKING:
    from rota.domain import events as e
    from rota.domain.events import Record


class Control:
    """Limits, rules and pauses."""

    def __init__(self) -> None:
        """Start with the documents' defaults and nobody paused."""
        self.limits = Limits()
        self.declared = Declarations()
        self.rules = Rules(declared=self.declared)
        self.paused: dict[str, str] = {}
        self.paused_types: dict[str, str] = {}
        self.stopped: str | None = None

    def on_settings(self, record: Record[e.ServerStarted | e.ConfigChanged]) -> None:
        event = record.event
        self.limits = limits_from(event.settings)
        if event.rules is not None:
            self.rules = Rules.from_dict(event.rules)._replace(declared=self.declared)

    def news_of(self, rules: Rules) -> dict[str, Any] | None:
        """Write rules as an event carries them; None if they are in force already."""
        return None if rules == self.rules._replace(declared=None) else rules.to_dict()

    def on_type_declared(self, record: Record[e.TypeDeclared]) -> None:
        event = record.event
        said = Declared(record.by, event.retry, event.timeout_ms, event.max_concurrent)
        self.declared.put(key_of(event), said)

    def on_paused(self, record: Record[e.AgentPaused]) -> None:
        event = record.event
        self.paused[event.agent] = event.reason

    def on_resumed(self, record: Record[e.AgentResumed]) -> None:
        event = record.event
        self.paused.pop(event.agent, None)

    def on_type_paused(self, record: Record[e.TypePaused]) -> None:
        event = record.event
        self.paused_types[event.type] = event.reason

    def on_type_resumed(self, record: Record[e.TypeResumed]) -> None:
        event = record.event
        self.paused_types.pop(event.type, None)

    def on_stopped(self, record: Record[e.SchedulerPaused]) -> None:
        event = record.event
        self.stopped = event.reason

    def why_paused(self, agent: str, action: str) -> str | None:
        """Say which pause keeps tasks of an agent and a type waiting, and why; None if none."""
        for reason, what in (
            (self.stopped, "everything"),
            (self.paused.get(agent), f"agent '{agent}'"),
            (self.paused_types.get(action), f"type '{action}'"),
        ):
            if reason is not None:
                return f"{what} is paused: {reason}" if reason else f"{what} is paused"
        return None

    def on_going(self, record: Record[e.SchedulerResumed]) -> None:
        del record
        self.stopped = None

    def dump(self) -> dict[str, Any]:
        return {
            "limits": limits_to(self.limits),
            "rules": self.rules.to_dict(),
            "paused": self.paused,
            "pausedTypes": self.paused_types,
            "stopped": self.stopped,
            "declared": [[*key, *each] for key, each in sorted(self.declared.by_key.items())],
        }

    def load(self, data: dict[str, Any]) -> None:
        self.limits = limits_from(data["limits"])
        self.rules = Rules.from_dict(data.get("rules", {}))._replace(declared=self.declared)
        self.paused.update(data["paused"])
        self.paused_types.update(data["pausedTypes"])
        self.stopped = data["stopped"]
        for agent, action, *said in data["declared"]:
            self.declared.put((agent, action), Declared(*said))


def limits_to(limits: Limits) -> dict[str, Any]:
    """Write limits as the `settings` of an event."""
    return {**limits._asdict(), "types": dict(limits.types)}


def limits_from(settings: dict[str, Any]) -> Limits:
    """Read limits from the `settings` of an event; unknown names are ignored."""
    known = {name: value for name, value in settings.items() if name in Limits._fields}
    known["types"] = tuple(sorted(known.get("types", {}).items()))
    return Limits(**known)
