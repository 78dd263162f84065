"""Looking up what a submission depends on, before it is decided.

A decision takes one turn of the loop, and each dependency that has left memory is a read of the
log: a thousand of them would hold everybody up. So where there are many they are looked up first, a
few at a time with the loop's turns in between, and travel with the message.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rota.domain.dependencies import REF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.actors.archive import Archive, Foreseen
    from rota.domain.commands import SubmitTask

FEW = 100
"""So many may as well be looked up when it is decided."""
SLICE = 200


async def foresee(archive: Archive, commands: Sequence[SubmitTask]) -> Foreseen | None:
    """Look up the tasks that commands depend on; None if there is little to look up."""
    if sum(len(command.depends) for command in commands) <= FEW:
        return None
    named = dict.fromkeys(
        each
        for command in commands
        for each in command.depends
        if isinstance(each, str) and not each.startswith(REF)
    )
    outside = archive.outside(named)
    if len(outside) <= FEW:
        return None
    foreseen = archive.foresee()
    for at in range(0, len(outside), SLICE):
        archive.look_up(outside[at : at + SLICE], foreseen)
        await asyncio.sleep(0)
    return foreseen
