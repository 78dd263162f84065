"""Other limits while the server runs: from the file, read again, or from a request.

The file's limits come into force in every namespace, and in one that cannot record just then when
its log is back; a request changes those of the one that it is for. A file that cannot be used
changes nothing. What only a start can bring into force is named.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.config import load_settings
from rota.domain.tokens import ROTA
from rota.errors import ConfigError, RotaError, StorageUnavailable
from rota.sections import FOR_ALL

if TYPE_CHECKING:
    from pathlib import Path

    from rota.config import Settings
    from rota.domain.commands import Limits
    from rota.domain.intake import Rules
    from rota.http.bridge import Bridge
    from rota.http.namespaces import Namespace, Namespaces

logger = logging.getLogger("rota.http")

NEEDS_RESTART = ("executors", "webhooks", "server", "browsermanager")
RELOADED = ("types", "job_limits", "browseros", "projects", "defaults", "presets")


class Reloaded(NamedTuple):
    """What a reload has changed, by namespace; what waits for a restart, and what for a log."""

    changed: dict[str, list[str]]
    late: list[str]
    """The sections that need a restart."""
    waiting: dict[str, str]
    """The namespaces that take it over when they can record again, and why they cannot."""
    rules: list[str]
    """The namespaces whose rules of types changed."""


class Reloading:
    """Changes the settings in force."""

    def __init__(self, namespaces: Namespaces, settings: Settings, path: Path | None) -> None:
        """Begin with `settings`, some of which `path` may say."""
        self._namespaces = namespaces
        self._path = path
        self._presets = settings.preset_options
        self._executors = ("pull", "builtin", *settings.executors)
        self._read = settings if path is None else load_settings(path, self._presets)
        self._changing = asyncio.Lock()

    async def reload(self, source: str, by: str = ROTA) -> Reloaded:
        """Read the file again and put its limits in force. Raises a RotaError.

        One namespace that cannot record them keeps nobody else from it.
        """
        done = Reloaded({each.name: [] for each in self._namespaces}, [], {}, [])
        if self._path is None:
            return done
        fresh = load_settings(self._path, self._presets)
        self._check(fresh)
        done.late.extend(self._late(fresh))
        if done.late:
            logger.warning("%s changed; that needs a restart", " and ".join(done.late))
        failed: RotaError | None = None
        for namespace in self._namespaces:
            own = fresh.of_namespace(namespace.name)
            before = namespace.bridge.settings.rules()
            try:
                done.changed[namespace.name] = await self._put(namespace, {}, own, source, by)
            except StorageUnavailable as error:
                done.waiting[namespace.name] = error.message
            except RotaError as error:
                failed = failed or error
            else:
                if namespace.bridge.settings.rules() != before:
                    done.rules.append(namespace.name)
        if failed is not None:
            raise failed
        return done

    async def change(
        self, namespace: Namespace, changes: dict[str, Any], source: str, by: str
    ) -> list[str]:
        """Lay changes of the limits over those in force; name what changed."""
        return await self._put(namespace, changes, None, source, by)

    async def _put(
        self,
        namespace: Namespace,
        changes: dict[str, Any],
        fresh: Settings | None,
        source: str,
        by: str,
    ) -> list[str]:
        """Put changes in force, one at a time; types and dialects, too, of a file read anew.

        What a file says is the shard's before it is recorded: should its log fail, then its start
        from the log records this. What a request says is the shard's only when it is durable.
        """
        bridge = namespace.bridge
        async with self._changing:
            scheduler = bridge.settings.scheduler
            if fresh is None:
                changes = {name: value for name, value in changes.items() if name not in FOR_ALL}
                update: dict[str, Any] = {"scheduler": scheduler.model_copy(update=changes)}
            else:
                update = {name: getattr(fresh, name) for name in RELOADED}
                update["scheduler"] = fresh.scheduler_after(scheduler)
            settings = bridge.settings.model_copy(update=update)
            limits, rules = settings.limits(), settings.rules()
            before = bridge.settings.projects.kill_wait_ms  # no limit: only answers go by it
            if fresh is not None:
                settings._layers = fresh._layers  # noqa: SLF001 - one of the same kind
                _take(bridge, settings, limits, rules)
            changed = await bridge.change_limits(limits, rules, source, by)
            bridge.settings = settings
            if settings.projects.kill_wait_ms != before:
                changed = [*changed, "killWaitMs"]
            return changed

    def _check(self, fresh: Settings) -> None:
        for name, kind in fresh.types.items():
            if kind.executor not in self._executors:
                msg = f"types.{name}: executor {kind.executor!r} is new, and needs a restart"
                raise ConfigError(msg)

    def _late(self, fresh: Settings) -> list[str]:
        """Name the sections that say something else than at the start, and cannot be reloaded."""
        late = [n for n in NEEDS_RESTART if getattr(fresh, n) != getattr(self._read, n)]
        if _places(fresh) != _places(self._read):
            late.append("namespaces")
        return late


def _take(bridge: Bridge, settings: Settings, limits: Limits, rules: Rules) -> None:
    """Have a shard start with these, whenever it starts from its log again."""
    bridge.settings = settings
    bridge.shard.configure(limits, rules)


def _places(settings: Settings) -> dict[str, Any]:
    """Give of the namespaces what is fixed at a start: which there are, where, and for whom."""
    return {name: (own.data_dir, own.tokens) for name, own in settings.namespaces.items()}
