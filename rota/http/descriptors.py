"""File descriptors: as many as the connections need, as far as the system lets us."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger("rota.http")

RESERVED = 1024
"""For the log, executors, callbacks and connections that are being refused."""
CONNECTIONS_MIN = 64


def make_room(connections: int) -> int:
    """Raise the soft limit for so many connections; give how many there can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        except (OSError, ValueError):
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    room = min(connections, max(CONNECTIONS_MIN, soft - RESERVED))
    msg = "the system allows %d open files: at most %d connections at once, not %d"
    logger.warning(msg, soft, room, connections)
    return room
