"""The processes below one: who they are, what they use, and signals that reach nobody else.

A pid may be given to a stranger at any moment. So a signal goes to a pidfd, which was opened before
it was seen that its process still descends from the root. Only the standard library is imported.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

PR_SET_CHILD_SUBREAPER = 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
_HAS_CHILDREN = os.path.exists("/proc/thread-self/children")  # noqa: PTH110 - starts fast


class Member(NamedTuple):
    """A process that has not ended."""

    parent: int
    threads: int
    resident_bytes: int


def become_subreaper() -> None:
    """Be the parent of whoever below loses its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def below(root: int) -> dict[int, Member]:
    """Find everybody below a process, parents first; not who has ended and was not reaped."""
    found: dict[int, Member] = {}
    children = _children_of if _HAS_CHILDREN else _by_parent().get
    level = [root]
    while level:
        level = [child for pid in level for child in children(pid) or ()]
        for pid in level:
            member = _member(pid)
            if member is not None:
                found[pid] = member
    return found


def send(root: int, pids: Iterable[int], number: int) -> None:
    """Send a signal to those of the pids that are below a process."""
    sure = {root}
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            continue  # it is gone
        try:
            if _descends(pid, sure):
                sure.add(pid)
                signal.pidfd_send_signal(fd, number)
        except OSError:
            pass  # it is gone, or is not ours to signal: who waits for it sees that
        finally:
            os.close(fd)


def resident_bytes(members: dict[int, Member], most: int) -> int:
    """Sum up the memory; where it seems to be more than `most`, what is shared counts once."""
    rough = sum(member.resident_bytes for member in members.values())
    if rough <= most:
        return rough
    return sum(_proportional(pid, member) for pid, member in members.items())


def _proportional(pid: int, member: Member) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123 - read as it is
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return member.resident_bytes


def _fields(pid: int) -> list[bytes] | None:
    """Give what /proc says of a process from its state on, or None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - read as it is
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def _member(pid: int) -> Member | None:
    fields = _fields(pid)
    if fields is None:
        return None
    threads = int(fields[17])
    if fields[0] in (b"Z", b"X") and threads <= 1:  # with more, only its first thread has ended
        return None
    return Member(int(fields[1]), threads, int(fields[21]) * _PAGE)


def _descends(pid: int, sure: set[int]) -> bool:
    while pid > 1:
        fields = _fields(pid)
        if fields is None:
            return False
        pid = int(fields[1])
        if pid in sure:
            return True
    return False


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names are wanted
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    except OSError:
        pass  # it has ended meanwhile, and its children are somebody else's
    return found


def _by_parent() -> dict[int, list[int]]:
    """Look at every process: not all kernels tell the children of one."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are wanted
        if name.isdigit():
            fields = _fields(int(name))
            if fields is not None:
                found.setdefault(int(fields[1]), []).append(int(name))
    return found
