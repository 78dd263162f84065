"""Settings as people may see them: in `rota config` and in GET /v1/config."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.config import Settings


def shown(settings: Settings) -> dict[str, Any]:
    """Give settings for people to see: secrets are named, never shown."""
    values = settings.model_dump(mode="json", by_alias=True)
    values["server"]["tokens"] = sorted(values["server"]["tokens"])
    values["webhooks"]["secret"] = "set" if settings.webhooks.secrets else ""
    for executor in values["executors"].values():
        executor["headers"] = sorted(executor["headers"])
        executor["url"] = re.sub(r"(?<=://)[^/@]*@", "", executor["url"])
    return values
