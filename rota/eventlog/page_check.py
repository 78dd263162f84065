"""A look at the pages of LMDB's file: whoever maps a damaged page may be killed by it.

Reads the pages as plain bytes, so nothing here can crash, and whatever is odd is said in a
sentence. The two meta pages and the size are always checked; then every tree is walked: branches
first, then everything, from the newest on, until a time bound. Each page must be reached once, and
say itself what it is; its nodes must fill it without gaps; keys must be in order, within what the
branches above say; the records must be numbered from 1. No page may be in use and free. The layout
is that of LMDB 0.9 (mdb.c: MDB_meta, MDB_page, MDB_node, MDB_db).
"""

from __future__ import annotations

import os
import struct
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rota.clock import monotonic_s
from rota.eventlog.damage import damaged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATABASES = (
    ("meta", False),
    ("events", False),
    ("by_task", True),
    ("snapshots", False),
    ("failed", False),
)
"""The databases by name, and whether a key has many values."""
MAY_LACK = frozenset({"failed"})
"""What an earlier rota did not write."""
LOOK_S = 1.0
PAGES_MIN = 2
TRIES = 5
_PAGE_BYTES = 4096
_HEADER = struct.Struct("<QHHHH")
_META = struct.Struct("<IIQQ")
_DB = struct.Struct("<IHHQQQQQ")
_NODE = struct.Struct("<HHHH")
_SEQ = struct.Struct(">Q")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOW = 0x01, 0x02, 0x04
_DUPSORT, _INTEGERKEY = 0x04, 0x08
_BIG, _SUBDATA, _DUPDATA = 0x01, 0x02, 0x04
_NONE = (1 << 64) - 1
_DEPTH_MAX = 32
_KEY_BYTES_MAX = 511
_FREE, _MAIN, _EVENTS = "of free pages", "of databases", "events"
_BY_NUMBER = frozenset({_FREE, _EVENTS, "failed"})
"""The trees whose keys are numbers."""


class _Tree(NamedTuple):
    """A database as its record describes it; `is_of_values` if it holds the values of one key."""

    name: str
    flags: int
    depth: int
    entries: int
    root: int
    is_of_values: bool = False


class _Node(NamedTuple):
    """An entry of a page: in a branch `size` is the page below."""

    key: bytes
    flags: int
    at: int
    size: int


class PageCheck:
    """One look at one file. Raises LogCorrupt."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.pages = 0

    def look(
        self,
        seconds: float = LOOK_S,
        *,
        txn: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> bool:
        """Walk as much as there is time for; give whether that was everything.

        Without `txn` nobody may write the file. With it, what that read transaction sees is walked,
        which must be held meanwhile; False if it was not the newest any more when this began.
        """
        self._end = monotonic_s() + seconds
        self._progress = progress
        handle = os.open(self._path, os.O_RDONLY)
        try:
            self._fd = handle
            top = self._top_trees(txn)
            if not top:
                return False
            self._seen = bytearray(self._last + 1)
            named = self._named(top[1])
            for self._is_thorough in (False, True):
                self._seen = bytearray(self._last + 1)
                self.pages = 0
                for tree in (*named, *reversed(top)):
                    self._walk(tree)
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

    def _odd(self, number: int, tree: _Tree, what: str = "is not what it should be") -> Exception:
        return self._wrong(f"page {number}, in the tree {tree.name}, {what}")

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

    def _top_trees(self, txn: int | None) -> tuple[_Tree, ...]:
        """Give the trees of free pages and of databases; none if `txn` is not there any more."""
        size = self._page_size()
        raw = self._page(0, PAGES_MIN)
        metas = [self._meta(raw, number) for number in range(PAGES_MIN)]
        if txn is not None:
            metas = [meta for meta in metas if meta[0] == txn]
            if not metas or raw != self._page(0, PAGES_MIN):
                return ()
        _, self._last, free, main = max(metas, key=lambda meta: meta[0])
        if os.fstat(self._fd).st_size < (self._last + 1) * size:
            raise self._wrong(f"its file ends before page {self._last}")
        if free.flags != _INTEGERKEY or main.flags:
            raise self._wrong("its first two pages are not what they should be")
        return free, main

    def _meta(self, raw: bytes, number: int) -> tuple[int, int, _Tree, _Tree]:
        """Read a meta page: its transaction, the last page, the trees of free pages and of all."""
        at = number * self._size + _HEADER.size
        magic, version, _, _ = _META.unpack_from(raw, at)
        at += _META.size
        size: int = _DB.unpack_from(raw, at)[0]
        if (magic, version, size) != (_MAGIC, _VERSION, self._size):
            raise self._wrong(f"page {number} does not begin a log")
        free, main = (_tree(name, raw, at + _DB.size * n) for n, name in enumerate((_FREE, _MAIN)))
        last, txn = struct.unpack_from("<QQ", raw, at + 2 * _DB.size)
        return txn, last, free, main

    def _named(self, main: _Tree) -> list[_Tree]:
        """Find the named databases: the main one has nothing else."""
        self._is_thorough = True
        found: list[_Tree] = []
        self._walk(main, found)
        names = {tree.name for tree in found}
        if unknown := names - {name for name, _ in DATABASES}:
            raise self._wrong(f"it has a database {min(unknown)!r}, which is not one of rota's")
        for name, dupsort in DATABASES:
            if name not in names and name not in MAY_LACK and names != {"meta"}:
                raise self._wrong(f"there is no database {name}")
            if any(tree.name == name and tree.flags != dupsort * _DUPSORT for tree in found):
                raise self._wrong(f"the database {name} is not what it should be")
        return found

    # -- the trees ---------------------------------------------------------------------------

    def _walk(self, tree: _Tree, named: list[_Tree] | None = None) -> None:
        """Check a tree, with `named` that of databases, which are put into it."""
        is_empty = tree.root == _NONE
        if is_empty != (tree.entries == 0) or is_empty != (tree.depth == 0):
            raise self._wrong(f"the tree {tree.name} is not what it should be")
        if is_empty:
            return
        if tree.depth > _DEPTH_MAX:
            raise self._wrong(f"the tree {tree.name} has no depth")
        low, high = b"", None
        if tree.name == _EVENTS:  # in order, and as many as there are: then none is missing
            low, high = _SEQ.pack(1), _SEQ.pack(min(tree.entries + 1, _NONE))
        entries = self._below(tree, tree.root, tree.depth, low, high, named)
        if self._is_thorough and entries != tree.entries:
            said = f"has {entries} entries, and says that they are {tree.entries}"
            raise self._wrong(f"the tree {tree.name} {said}")

    def _below(
        self,
        tree: _Tree,
        number: int,
        depth: int,
        low: bytes,
        high: bytes | None,
        named: list[_Tree] | None,
    ) -> int:
        """Check a page and those below it, with keys from `low` to before `high`; count entries."""
        is_leaf = depth == 1
        if is_leaf and not self._is_thorough:
            return 0
        raw = self._checked(tree, number, _LEAF if is_leaf else _BRANCH)
        nodes = self._nodes(tree, number, raw, 0, self._size)
        keys = [node.key for node in nodes]
        if tree.name == _FREE:
            keys = [key[::-1] for key in keys]  # numbers with their lowest byte first
        if not is_leaf:
            keys[0] = low  # what a branch says of its first key means nothing
        if tree.name == _EVENTS and high is not None and keys[-1] >= high:
            self._check_gaps(tree, keys if is_leaf else keys[-1:])
        self._check_order(tree, number, keys, low, high)
        if is_leaf:
            return sum(self._leaf_node(tree, number, raw, node, named) for node in nodes)
        ends = [*keys[1:], high]
        return sum(
            self._below(tree, node.size, depth - 1, begin, end, named)
            for node, begin, end in zip(
                reversed(nodes), reversed(keys), reversed(ends), strict=True
            )
        )

    def _check_gaps(self, tree: _Tree, keys: list[bytes]) -> None:
        """Say which record is missing, where one has a number above how many there are."""
        seqs = [int.from_bytes(key, "big") for key in keys]
        gaps = [b - a for a, b in pairwise(seqs)]
        if min(gaps, default=1) < 1:
            return  # they are not in order, which is something else
        if max(gaps, default=1) > 1:
            first = next(a + 1 for a, b in pairwise(seqs) if b > a + 1)
            raise self._wrong(f"record {first} is missing")
        said = f"there are {tree.entries}, and one numbered {seqs[-1]}"
        raise self._wrong(f"records are missing: {said}")

    def _check_order(
        self, tree: _Tree, number: int, keys: list[bytes], low: bytes, high: bytes | None
    ) -> None:
        is_within = keys[0] >= low and (high is None or keys[-1] < high)
        if not is_within or any(a >= b for a, b in pairwise(keys)):
            raise self._odd(number, tree, "has keys that are not in order")

    def _checked(self, tree: _Tree, number: int, kind: int) -> bytes:
        """Read a page that must be of this kind, and be itself."""
        self._take(tree, number)
        self.pages += 1
        if not self.pages % 64:
            if monotonic_s() > self._end:
                raise _OutOfTimeError
            if self._progress is not None and self._is_thorough:
                self._progress(self.pages, self._last)
        raw = self._page(number)
        own, _, flags, *_ = _HEADER.unpack_from(raw)
        if own != number or flags != kind:
            raise self._odd(number, tree)
        return raw

    def _take(self, tree: _Tree, number: int, count: int = 1) -> None:
        """Note that pages are taken. Raises LogCorrupt if they are not there, or taken already."""
        if not PAGES_MIN <= number <= number + count - 1 <= self._last:
            raise self._wrong(f"the tree {tree.name} leads to page {number}, which is not there")
        if any(self._seen[number : number + count]):
            raise self._odd(number, tree, "is used twice, or is in use and free")
        self._seen[number : number + count] = b"\1" * count

    def _nodes(self, tree: _Tree, number: int, raw: bytes, base: int, end: int) -> list[_Node]:
        """Read the nodes of a page, or of a small one within it; they fill it without gaps."""
        _, _, kind, lower, upper = _HEADER.unpack_from(raw, base)
        count = (lower - _HEADER.size) // 2
        if lower % 2 or count < 1 or not lower <= upper < end - base:
            raise self._odd(number, tree)
        places = struct.unpack_from(f"<{count}H", raw, base + _HEADER.size)
        nodes, spans = [], []
        for place in places:
            at = base + place
            if place < upper or at + _NODE.size > end:
                raise self._odd(number, tree)
            small, large, flags, key_size = _NODE.unpack_from(raw, at)
            size, begin = small | large << 16, at + _NODE.size + key_size
            if kind & _BRANCH:
                held, size, flags = 0, size | flags << 32, 0
            else:
                held = 8 if flags & _BIG else size
            nodes.append(_Node(raw[at + _NODE.size : begin], flags, begin, size))
            spans.append((place, (_NODE.size + key_size + held + 1) & ~1))
        spans.sort()
        for place, length in spans:
            if place != upper:
                raise self._odd(number, tree)
            upper += length
        if upper != end - base:
            raise self._odd(number, tree)
        return nodes

    def _leaf_node(
        self, tree: _Tree, number: int, raw: bytes, node: _Node, named: list[_Tree] | None
    ) -> int:
        """Check what a key of a leaf has; give how many entries that is."""
        flags, size = node.flags, node.size
        has_many = bool(tree.flags & _DUPSORT)
        is_number = tree.is_of_values or tree.name in _BY_NUMBER
        least, most = (_SEQ.size, _SEQ.size) if is_number else (1, _KEY_BYTES_MAX)
        if not least <= len(node.key) <= most or (tree.is_of_values and (flags or size)):
            raise self._odd(number, tree)
        if tree.name == _MAIN:
            if flags != _SUBDATA or size != _DB.size:
                raise self._odd(number, tree, "names no database")
            if named is not None:
                named.append(_tree(node.key.decode(errors="replace"), raw, node.at))
        elif has_many and flags:
            return self._values(tree, number, raw, node)
        elif flags not in (0, _BIG) or (has_many and size != _SEQ.size):
            raise self._odd(number, tree)
        elif flags:
            self._overflow(tree, number, raw, node)
        elif tree.name == _FREE:
            self._free(tree, number, raw[node.at : node.at + size])
        return 1

    def _values(self, tree: _Tree, number: int, raw: bytes, node: _Node) -> int:
        """Check the values of one key: a small page within the page, or a tree of their own."""
        at, size = node.at, node.size
        if node.flags == _DUPDATA | _SUBDATA and size == _DB.size:
            below = _tree(tree.name, raw, at)._replace(is_of_values=True)
            if below.flags or below.root == _NONE:
                raise self._odd(number, tree)
            self._walk(below)
            return below.entries
        if node.flags != _DUPDATA or size <= _HEADER.size:
            raise self._odd(number, tree)
        if not _HEADER.unpack_from(raw, at)[2] & _LEAF:
            raise self._odd(number, tree)
        values = self._nodes(tree, number, raw, at, at + size)
        if any(value.flags or value.size or len(value.key) != _SEQ.size for value in values):
            raise self._odd(number, tree)
        self._check_order(tree, number, [value.key for value in values], b"", None)
        return len(values)

    def _overflow(self, tree: _Tree, number: int, raw: bytes, node: _Node) -> None:
        """Check the pages that hold one large value."""
        first: int = struct.unpack_from("<Q", raw, node.at)[0]
        needed = (node.size + _HEADER.size - 1) // self._size + 1
        if not PAGES_MIN <= first <= self._last:
            raise self._odd(number, tree, f"leads to page {first}")
        own, _, flags, low, high = _HEADER.unpack_from(self._page(first))
        count = low | high << 16
        if own != first or flags != _OVERFLOW or count < needed:
            raise self._odd(first, tree)
        self._take(tree, first, count)
        self.pages += count
        if tree.name == _FREE:
            self._free(tree, first, self._page(first, count)[_HEADER.size :][: node.size])

    def _free(self, tree: _Tree, number: int, raw: bytes) -> None:
        """Check a list of free pages: its length, then the pages, the last first."""
        count: int = struct.unpack_from("<Q", raw)[0] if len(raw) >= 8 else _NONE
        if len(raw) < 8 * (count + 1):
            raise self._odd(number, tree)
        pages = struct.unpack_from(f"<{count}Q", raw, 8)
        if any(a <= b for a, b in pairwise(pages)):
            raise self._odd(number, tree, "has a list that is not in order")
        for page in pages:
            self._take(tree, page)


class _OutOfTimeError(Exception):
    """There is more to look at than there is time for."""


def _tree(name: str, raw: bytes, at: int) -> _Tree:
    _, flags, depth, _, _, _, entries, root = _DB.unpack_from(raw, at)
    return _Tree(name, flags, depth, entries, root)
