"""Settings by environment variable: the one that a document names.

A variable goes before the configuration file and the presets; an option of the command line goes
before it. What is empty or 0 says nothing, as in the file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CONCURRENT = "TASK_QUEUE_MAX_CONCURRENT"
"""BrowserOS's bound on how many of its tasks run at once."""
DIGITS_MAX = 9


def with_environment(
    data: dict[str, Any], environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Lay the environment over a file whose keys are canonical. Raises ConfigError."""
    text = (os.environ if environ is None else environ).get(MAX_CONCURRENT, "").strip()
    if text.strip("0") == "":
        return data
    if not (text.isascii() and text.isdigit()) or len(text) > DIGITS_MAX:
        msg = f"{MAX_CONCURRENT}: must be a whole number, such as 4"
        raise ConfigError(msg, hint="it is set in the environment, not in the file")
    most = {"maxConcurrent": int(text)}
    browseros, types = data.get("browseros", {}), data.get("types", {})
    if isinstance(browseros, dict):
        data = {**data, "browseros": {**browseros, **most}}
    if isinstance(types, dict) and isinstance(types.get("chat"), dict):
        data = {**data, "types": {**types, "chat": {**types["chat"], **most}}}
    return data
