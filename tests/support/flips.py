"""Flips a bit in a log, again and again, and says what `rota verify` and a server make of each.

The server's own look at the pages is left out: what that finds, `rota verify` finds in the same way.

Run as a program, since LMDB may be killed by a page that is damaged: for each seed it prints what
it is about to do and what came of it, and whoever started it starts it again after a death.
"""

from __future__ import annotations

import random
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from rota.actors.recovery import rebuild
from rota.cli.offline import verify_job
from rota.errors import LogCorrupt
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.page_check import PageCheck
from rota.eventlog.replay import stored, stored_of

PAGE = 4096
HEAD_BYTES = 64


def flipped(whole: bytes, seed: int) -> bytes:
    """Flip one bit: of any page, and half of the times near its beginning or in a node's head."""
    dice = random.Random(seed)
    data = bytearray(whole)
    page = dice.randrange(len(data) // PAGE) * PAGE
    if dice.random() < 0.5:
        at = page + dice.randrange(HEAD_BYTES)
    elif page >= 2 * PAGE and dice.random() < 0.5:
        place = int.from_bytes(data[page + 16 + 2 * dice.randrange(8) :][:2], "little")
        at = page + min(place, PAGE - 16) + dice.randrange(16)
    else:
        at = page + dice.randrange(PAGE)
    data[at] ^= 1 << dice.randrange(8)
    return bytes(data)


def serve(folder: Path) -> Any:
    """Do what a server does: open, claim, fold; and read everything by every way there is."""
    PageCheck.look = lambda self: True  # type: ignore[method-assign]
    with closing(LmdbLog(folder)) as log:
        log.claim()
        state = rebuild(log).digest()
        head = log.head()
        records = [item.digest for item in stored(log)]
        one_by_one = [log.read(seq - 1, 1)[0].digest for seq in range(1, head.seq + 1)]
        tasks = {
            task: [item.seq for item in stored_of(log, task)]
            for task in (f"t{n}" for n in range(int(sys.argv[4])))
        }
        return state, head, records == one_by_one, tasks, log.failed_before(head.seq + 1, 10_000)


def main() -> None:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    whole = (source / "data.mdb").read_bytes()
    first, end = map(int, sys.argv[3].split("-"))
    right = None
    look = PageCheck.look
    for seed in range(first - 1, end):
        data = whole if right is None else flipped(whole, seed)
        for what in ("verify", "serve"):
            for old in folder.glob("*.mdb"):
                old.unlink()
            (folder / "data.mdb").write_bytes(data)
            print(seed, what, "begins", flush=True)
            try:
                if what == "verify":
                    PageCheck.look = look  # type: ignore[method-assign]
                    verify_job(folder, lambda _: lambda *_: None, kept=None)
                    said = "good"
                else:
                    found = serve(folder)
                    right = right or found
                    said = "good" if found == right else "other"
            except LogCorrupt as error:
                said = f"corrupt {error}"
            except Exception as error:  # noqa: BLE001 - which is what is asked
                said = f"failed {error!r}"
            print(seed, what, said.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
