"""A quick look at LMDB's file before it is mapped: whoever maps a damaged page may be killed by it.

Reads the pages as plain bytes, so nothing here can crash, and whatever is odd is said in a
sentence. The two meta pages and the size are always checked; then every tree is walked: branches
first, then leaves from the newest on, until a time bound. Only for a file that nobody writes. The
layout is that of LMDB 0.9 (mdb.c: MDB_meta, MDB_page, MDB_node, MDB_db).
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from rota.clock import monotonic_s
from rota.eventlog.damage import damaged

if TYPE_CHECKING:
    from pathlib import Path

LOOK_S = 1.0
PAGES_MIN = 2
TRIES = 5
_PAGE_BYTES = 4096
_HEADER = struct.Struct("<QHHHH")
_META = struct.Struct("<IIQQ")
_DB = struct.Struct("<IHHQQQQQ")
_NODE = struct.Struct("<HHHH")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOW, _LEAF2 = 0x01, 0x02, 0x04, 0x20
_BIG, _SUBDATA, _DUPDATA = 0x01, 0x02, 0x04
_NONE = (1 << 64) - 1
_DEPTH_MAX = 32


class _Tree(NamedTuple):
    """A database as its record describes it."""

    name: str
    depth: int
    root: int


class PageCheck:
    """One look at one file. Raises LogCorrupt."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._trees: list[_Tree] = []
        self.pages = 0

    def look(self, seconds: float = LOOK_S) -> bool:
        """Walk as much as there is time for; give whether that was everything."""
        self._end = monotonic_s() + seconds
        handle = os.open(self._path, os.O_RDONLY)
        try:
            self._fd = handle
            self._trees = self._trees_of_newest_meta()
            leaves = [number for tree in self._trees for number in self._branches(tree)]
            self._trees = []
            self._leaves(leaves)
            while self._trees:  # those of keys with many values, found on the way
                self._leaves(self._branches(self._trees.pop()))
        except _OutOfTimeError:
            return False
        finally:
            os.close(handle)
        return True

    def look_at_beginning(self) -> None:
        """Look at the meta pages alone: which of them counts is decided by a number in each."""
        handle = os.open(self._path, os.O_RDONLY)
        try:
            self._fd = handle
            for tries_left in range(TRIES - 1, -1, -1):  # somebody may be writing them
                raw = os.pread(handle, PAGES_MIN * self._page_size(), 0)
                first, second = (self._meta(raw, number)[0] for number in range(PAGES_MIN))
                is_right = first % 2 == 0 and (second % 2 == 1 or first == second == 0)
                if is_right and abs(first - second) <= 1:
                    return
                if not tries_left:
                    raise self._wrong("its first two pages do not follow each other")
        finally:
            os.close(handle)

    def _wrong(self, what: str) -> Exception:
        return damaged(f"the log in {self._path.parent} is damaged: {what}")

    def _page(self, number: int, count: int = 1) -> bytes:
        raw = os.pread(self._fd, self._size * count, number * self._size)
        if len(raw) < self._size * count:
            raise self._wrong(f"page {number} is cut short")
        return raw

    # -- the beginning -----------------------------------------------------------------------

    def _page_size(self) -> int:
        """Read how large a page is, which the first one says."""
        first = os.pread(self._fd, _PAGE_BYTES, 0)
        length = os.fstat(self._fd).st_size
        if len(first) < _PAGE_BYTES:
            raise self._wrong(f"its file has only {length} bytes")
        size: int = _DB.unpack_from(first, _HEADER.size + _META.size)[0]
        if not 512 <= size <= 65536 or size & (size - 1):
            raise self._wrong("its first page is not one of a log")
        if length < PAGES_MIN * size:
            raise self._wrong(f"its file has only {length} bytes")
        self._size = size
        return size

    def _trees_of_newest_meta(self) -> list[_Tree]:
        size = self._page_size()
        raw = self._page(0, PAGES_MIN)
        metas = [self._meta(raw, number) for number in range(PAGES_MIN)]
        _, self._last, free, main = max(metas, key=lambda meta: meta[0])
        if os.fstat(self._fd).st_size < (self._last + 1) * size:
            raise self._wrong(f"its file ends before page {self._last}")
        return [free, main, *self._named(main)]

    def _meta(self, raw: bytes, number: int) -> tuple[int, int, _Tree, _Tree]:
        """Read a meta page: its transaction, the last page, the trees of free pages and of all."""
        at = number * self._size + _HEADER.size
        magic, version, _, _ = _META.unpack_from(raw, at)
        if (magic, version) != (_MAGIC, _VERSION):
            raise self._wrong(f"page {number} does not begin a log")
        at += _META.size
        free, main = (_tree("", raw, at + _DB.size * n) for n in range(2))
        last, txn = struct.unpack_from("<QQ", raw, at + 2 * _DB.size)
        return txn, last, free._replace(name="of free pages"), main._replace(name="of databases")

    def _named(self, main: _Tree) -> list[_Tree]:
        """Find the named databases: the main one has nothing else."""
        found = []
        for number in self._branches(main):
            raw = self._checked(number, _LEAF)
            for at, flags, key_size, data_size, big in self._nodes(raw, number):
                if not flags & _SUBDATA or big or data_size != _DB.size:
                    raise self._wrong(f"page {number} names no database")
                key = raw[at + _NODE.size : at + _NODE.size + key_size]
                name = key.decode(errors="replace")
                found.append(_tree(name, raw, at + _NODE.size + key_size))
        return found

    # -- the trees ---------------------------------------------------------------------------

    def _branches(self, tree: _Tree) -> list[int]:
        """Walk a tree's branch pages; give its leaves, the last first."""
        if tree.root == _NONE:
            return []
        if not 0 < tree.depth <= _DEPTH_MAX:
            raise self._wrong(f"the tree {tree.name} has no depth")
        level = [tree.root]
        for _ in range(tree.depth - 1):
            below: list[int] = []
            for number in level:
                raw = self._checked(number, _BRANCH)
                kids = [self._child(raw, at, number) for at in self._places(raw, number)]
                below += reversed(kids)
                if len(below) > self._last:
                    raise self._wrong(f"the tree {tree.name} has more pages than there are")
            level = below
        return level

    def _leaves(self, numbers: list[int]) -> None:
        for number in numbers:
            raw = self._checked(number, _LEAF)
            if not _HEADER.unpack_from(raw)[2] & _LEAF2:
                for _, _, _, data_size, big in self._nodes(raw, number):
                    if big:
                        self._overflow(big, data_size, number)

    def _checked(self, number: int, kind: int) -> bytes:
        """Read a page that must be of this kind, and be itself."""
        if not PAGES_MIN <= number <= self._last:
            raise self._wrong(f"there is no page {number}")
        self.pages += 1
        if not self.pages % 64 and monotonic_s() > self._end:
            raise _OutOfTimeError
        raw = self._page(number)
        own, _, flags, lower, upper = _HEADER.unpack_from(raw)
        if own != number or not flags & kind or not _HEADER.size <= lower <= upper <= self._size:
            raise self._wrong(f"page {number} is not what it should be")
        return raw

    def _places(self, raw: bytes, number: int) -> tuple[int, ...]:
        """Give where a page's nodes are."""
        lower, upper = _HEADER.unpack_from(raw)[3:]
        places: tuple[int, ...] = struct.unpack_from(
            f"<{(lower - _HEADER.size) // 2}H", raw, _HEADER.size
        )
        if not places or min(places) < upper or max(places) > self._size - _NODE.size:
            raise self._wrong(f"page {number} is not what it should be")
        return places

    def _child(self, raw: bytes, at: int, number: int) -> int:
        low, high, flags, key_size = _NODE.unpack_from(raw, at)
        if at + _NODE.size + key_size > self._size:
            raise self._wrong(f"page {number} is not what it should be")
        return int(low | high << 16 | flags << 32)

    def _nodes(self, raw: bytes, number: int) -> list[tuple[int, int, int, int, int]]:
        """Give a leaf's nodes: place, flags, size of key and of data, first page of big data."""
        found = []
        for at in self._places(raw, number):
            low, high, flags, key_size = _NODE.unpack_from(raw, at)
            size, begin, big = low | high << 16, at + _NODE.size + key_size, 0
            if begin + (8 if flags & _BIG else size) > self._size or flags > 7:
                raise self._wrong(f"page {number} is not what it should be")
            if flags & _BIG:
                big = struct.unpack_from("<Q", raw, begin)[0]
            elif flags & _DUPDATA:
                self._duplicates(raw, begin, size, flags, number)
            found.append((at, flags, key_size, size, big))
        return found

    def _duplicates(self, raw: bytes, at: int, size: int, flags: int, number: int) -> None:
        """Check the values of one key: a small page within the page, or a tree of their own."""
        if flags & _SUBDATA:
            if size != _DB.size:
                raise self._wrong(f"page {number} is not what it should be")
            self._trees.append(_tree("of many values", raw, at))
            return
        if size < _HEADER.size or not _HEADER.unpack_from(raw, at)[2] & _LEAF:
            raise self._wrong(f"page {number} is not what it should be")

    def _overflow(self, first: int, data_size: int, number: int) -> None:
        """Check the pages that hold one large value."""
        count = (data_size + _HEADER.size - 1) // self._size + 1
        if not PAGES_MIN <= first <= first + count - 1 <= self._last:
            raise self._wrong(f"page {number} leads to page {first}")
        own, _, flags, *_ = _HEADER.unpack_from(self._page(first))
        if own != first or not flags & _OVERFLOW:
            raise self._wrong(f"page {first} is not what it should be")


class _OutOfTimeError(Exception):
    """There is more to look at than there is time for."""


def _tree(name: str, raw: bytes, at: int) -> _Tree:
    _, _, depth, _, _, _, _, root = _DB.unpack_from(raw, at)
    return _Tree(name, depth, root)
