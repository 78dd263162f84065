"""A record that is not what was written, met while the server runs.

It is said to whoever asked, logged once, and shown by /health from then on: reading it again will
not mend it. New work is still taken, since what is written now does not touch what was written.
"""

from __future__ import annotations

import logging

from rota.errors import LogCorrupt, LogError, RotaError, StorageUnavailable

logger = logging.getLogger("rota.http")


class Damage:
    """What was found to be damaged first, if anything was."""

    def __init__(self) -> None:
        self.reason = ""

    def met(self, error: LogError) -> RotaError:
        """Take note of what the log could not give; give what to answer."""
        if isinstance(error, LogCorrupt):
            if not self.reason:
                self.reason = str(error)
                logger.error("the log is damaged; what can be read is still served: %s", error)
            return error
        return StorageUnavailable(error.message, hint="try again later")
