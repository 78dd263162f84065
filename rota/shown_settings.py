"""Settings as people may see them: in `rota config` and in GET /v1/config."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rota.command_section import not_for

if TYPE_CHECKING:
    from rota.config import Settings

SET = "set"


def shown(settings: Settings) -> dict[str, Any]:
    """Give settings for people to see: secrets are named, never shown.

    Of the command of an executor only the program is shown: its arguments may be secrets, too. They
    keep the shape that they have in a file, so that what is shown can be one to start from.
    """
    values = settings.model_dump(mode="json", by_alias=True)
    values["server"]["tokens"] = _named(values["server"]["tokens"])
    values["namespaces"] = {
        name: {
            "dataDir": own.data_dir,
            "tokens": _named(own.tokens),
            "scheduler": own.scheduler.model_dump(mode="json", by_alias=True, exclude_unset=True),
        }
        for name, own in settings.namespaces.items()
    }
    values["webhooks"]["secret"] = SET if settings.webhooks.secrets else ""
    for name, executor in values["executors"].items():
        executor["headers"] = _named(executor["headers"])
        executor["env"] = _named(executor["env"])
        executor["argv"] = executor["argv"][:1]
        kind = executor.pop("kind")
        own = {key: value for key, value in executor.items() if key not in not_for(kind)}
        values["executors"][name] = {"kind": kind, **own}
    bare: dict[str, Any] = _bare(values)
    return bare


def _bare(value: Any) -> Any:
    """Leave out of each URL who it is asked as, and its query: both may have secrets."""
    if isinstance(value, dict):
        return {name: _bare(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_bare(each) for each in value]
    if not isinstance(value, str) or "://" not in value:
        return value
    return re.sub(r"[?#].*", "", re.sub(r"(?<=://)[^/?#]*@", "", value), flags=re.DOTALL)


def _named(secrets: dict[str, str]) -> dict[str, str]:
    return dict.fromkeys(sorted(secrets), SET)
