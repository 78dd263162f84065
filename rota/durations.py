"""Lengths of time as people write them: whole seconds, or Go's `5m0s`."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BeforeValidator

_GO = re.compile(r"(?=\d)(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)


def seconds_of(value: Any) -> Any:
    """Read a duration as Go writes it; give what is no string as it is. Raises ValueError."""
    if not isinstance(value, str):
        return value
    found = _GO.fullmatch(value.strip())
    if found is None:
        msg = "must be a whole number of seconds, or a duration such as 5m0s"
        raise ValueError(msg)
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


IN_SECONDS = BeforeValidator(seconds_of)
"""For a setting that is a whole number of seconds."""
