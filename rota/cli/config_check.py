"""All that keeps a configuration from being served, not only the first of it.

What a server looks at before it opens its log is looked at here as well: the keys and values, the
tokens and the address, the folders, the signing secrets, the hosts that may be called, the event
handlers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.config import load_settings
from rota.errors import ConfigError
from rota.executors.callback import signers_of
from rota.executors.guard import CallbackGuard
from rota.http.event_hooks import load_handler
from rota.server import exposures, shared_folders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rota.config import Settings


def problems_of(path: Path | None, presets: tuple[str, ...]) -> list[ConfigError]:
    """Give what is wrong with a file; nothing is opened or started."""
    try:
        settings = load_settings(path, presets)
    except ConfigError as error:
        said = error.details.get("problems") or [error.message]
        return [ConfigError(problem, hint=error.hint) for problem in said]
    return list(_problems(settings))


def _problems(settings: Settings) -> Iterator[ConfigError]:
    yield from exposures(settings)
    yield from shared_folders(settings)
    try:
        signers_of(settings.webhooks.secrets)
    except ConfigError as error:
        yield error
    for entry in settings.webhooks.allow_hosts:
        try:
            CallbackGuard([entry]).close()
        except ConfigError as error:
            yield error
    for handler in settings.server.on_event:
        try:
            load_handler(handler)
        except ConfigError as error:
            yield error
