"""The keys that clients gave: idempotency keys and dedup keys, and which task each stands for.

A key belongs to the principal who used it. An idempotency key is held until `IDEMPOTENCY_US` after
its task or batch has ended, a dedup key while its task is active and until its own `until`. Both
are forgotten by the time of the records, so a replay holds what the live server held. There may be
a million, so each is kept as a digest and a few packed bytes, and idempotency keys wait to be
forgotten in the order of their ends, which is that of the records. Moments are kept less the
`shift` of the clock, which whoever folds its steps sets: a step changes none of them.
"""

from __future__ import annotations

import re
from collections import deque
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.domain.tokens import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.domain import events as e
    from rota.domain.batch import Batch
    from rota.domain.events import Record
    from rota.domain.plan import Plan
    from rota.domain.task import Task

IDEMPOTENCY_US = 24 * 3600 * 1_000_000

Name = bytes
"""The digest of (kind, principal, key)."""

_HEAD = Struct(">qqB")
"""until, ends, and how long the digest is, which follows; the subject is the rest."""
_TEXT = 0x80
"""Added to the length of a digest that is kept as text."""
_OURS = re.compile("[0-9a-f]{32}")


class Held(NamedTuple):
    """What a key stands for; `ends` is when it is free again, 0 while that is not known."""

    subject: str
    digest: str | None = None
    until: int = 0
    ends: int = 0


def pack(held: Held) -> bytes:
    kind, digest = _written(held.digest)
    return _HEAD.pack(held.until, held.ends, kind) + digest + held.subject.encode()


def unpack(packed: bytes) -> Held:
    until, ends, kind = _HEAD.unpack_from(packed)
    at = _HEAD.size + (kind & ~_TEXT)
    raw = packed[_HEAD.size : at]
    digest = raw.decode() if kind & _TEXT else raw.hex() if kind else None
    return Held(packed[at:].decode(), digest, until, ends)


def _written(digest: str | None) -> tuple[int, bytes]:
    """Write a digest as bytes if it is one of ours, else as the text that it is."""
    if digest is None:
        return 0, b""
    if _OURS.fullmatch(digest):
        return 16, bytes.fromhex(digest)
    text = digest.encode("ascii", "replace")[: _TEXT - 1]
    return _TEXT | len(text), text


class Keys:
    """The keys that are held, packed."""

    def __init__(self) -> None:
        self.held: dict[Name, bytes] = {}
        self.ending: deque[Name] = deque()  # idempotency keys whose subject has ended, in order
        self.expiring: list[tuple[int, Name]] = []  # dedup keys whose task has ended, a heap
        self.shift = 0
        self.settled: Callable[[int], int] = int
        """Gives the moment by which keys are forgotten: after a start the clock may be ahead."""
        # A subject that lives again leaves its entry in `ending`, too far inside to be taken out.
        # So many of a key's first entries there mean nothing, and are skipped when they come up.
        self._void: dict[Name, int] = {}

    def get(self, name: Name) -> Held | None:
        """Give what holds a key, or held it last."""
        packed = self.held.get(name)
        return unpack(packed) if packed is not None else None

    def find(self, name: Name, now: int) -> Held | None:
        """Give what holds a key at this moment."""
        held = self.get(name)
        now = self.settled(now) - self.shift
        is_held = held is not None and (not held.ends or now < held.ends)
        return held if is_held else None

    def rival(self, task: Task, now: int) -> tuple[str, str] | None:
        """Give the dedup key of a task and who else holds it, if anybody does."""
        key = task.plan.dedup if task.plan is not None else None
        held = self.find(dedup(task.by, key), now) if key is not None else None
        return (key or "", held.subject) if held is not None and held.subject != task.id else None

    def on_submitted(self, record: Record[e.TaskFact], task: Task) -> None:
        plan = task.plan
        if plan is None:
            return
        if plan.idempotency is not None:
            name = idempotency(record.by, plan.idempotency)
            self.held[name] = pack(Held(task.id, plan.digest))
        if plan.dedup is not None:
            held = Held(task.id, None, self._until(plan))
            self.held[dedup(record.by, plan.dedup)] = pack(held)

    def on_ended(self, record: Record[e.TaskFact], task: Task) -> None:
        """Say when the keys of a task that ended are free again."""
        plan = task.plan
        if plan is None:
            return
        if plan.idempotency is not None:
            name = idempotency(task.by, plan.idempotency)
            if self._end(name, task.id, record.at + IDEMPOTENCY_US):
                self.ending.append(name)
        if plan.dedup is not None:
            name = dedup(task.by, plan.dedup)
            ends = self._end(name, task.id, record.at)
            if ends:
                heappush(self.expiring, (ends, name))

    def on_revived(self, record: Record[e.TaskRevived], task: Task) -> None:
        """Hold the keys of a task that lives again, unless somebody else has them now."""
        plan, at = task.plan, record.at
        if plan is None:
            return
        if plan.idempotency is not None:
            name = idempotency(task.by, plan.idempotency)
            self._hold_again(name, Held(task.id, plan.digest), at)
        if plan.dedup is not None:
            name = dedup(task.by, plan.dedup)
            self._hold_again(name, Held(task.id, None, self._until(plan)), at)

    def _until(self, plan: Plan) -> int:
        return plan.dedup_until - self.shift if plan.dedup_until else 0

    def _hold_again(self, name: Name, fresh: Held, at: int) -> None:
        """Hold a key; one that is free again is anybody's, be it forgotten already or not."""
        held = self.get(name)
        if held is None or held.subject == fresh.subject or self.find(name, at) is None:
            self._void_end(name, held)
            self.held[name] = pack(fresh)

    def _void_end(self, name: Name, held: Held | None) -> None:
        """Have the entry in `ending` mean nothing: the key ends no more."""
        if held is not None and _is_in_line(held):
            self._void[name] = self._void.get(name, 0) + 1

    def on_batch(self, record: Record[e.BatchSubmitted | e.WorkflowSubmitted]) -> None:
        event = record.event
        if event.idempotency is not None:
            name = idempotency(record.by, event.idempotency)
            self.held[name] = pack(Held(event[0], event.digest))

    def on_batch_finished(
        self, record: Record[e.BatchFinished | e.WorkflowEnded], batch: Batch
    ) -> None:
        if batch.idempotency is not None:
            name = idempotency(batch.by, batch.idempotency)
            if self._end(name, batch.id, record.at + IDEMPOTENCY_US):
                self.ending.append(name)

    def on_batch_revived(self, record: Record[e.TaskRevived], batch: Batch) -> None:
        """Hold the key of a batch on, of which a task lives again, unless it is free by now."""
        if batch.idempotency is not None:
            name = idempotency(batch.by, batch.idempotency)
            held = self.find(name, record.at)
            if held is not None and held.subject == batch.id:
                self._void_end(name, held)
                self.held[name] = pack(held._replace(ends=0))

    def _end(self, name: Name, subject: str, ends: int) -> int:
        """Let a key end; give when it does, 0 if it is another's by now."""
        held = self.get(name)
        if held is None or held.subject != subject:
            return 0
        ends = max(ends - self.shift, held.until)
        self.held[name] = pack(held._replace(ends=ends))
        return ends

    def next_end(self) -> int | None:
        """Say when the next key may be free again."""
        ends = [self._ends(self.ending[0])] if self.ending else []
        ends += [self.expiring[0][0]] if self.expiring else []
        return min(ends) + self.shift if ends else None

    def _ends(self, name: Name) -> int:
        packed = self.held.get(name)
        return int(_HEAD.unpack_from(packed)[1]) if packed is not None else 0

    def forget(self, now: int) -> None:
        """Drop the keys that are free again."""
        ending, now = self.ending, now - self.shift
        while ending:
            name = ending[0]
            if name in self._void:
                self._skip(self._void, name)
            elif (ends := self._ends(name)) > now:
                break  # those behind it end later
            elif ends:  # 0: another holds it by now, or nobody does
                del self.held[name]
            ending.popleft()
        while self.expiring and self.expiring[0][0] <= now:
            until, name = heappop(self.expiring)
            if self._ends(name) == until:  # else it lives again, or another holds it
                del self.held[name]

    @staticmethod
    def _skip(void: dict[Name, int], name: Name) -> None:
        void[name] -= 1
        if not void[name]:
            del void[name]

    def rows(self) -> Iterator[list[Any] | None]:
        """Give the keys of this instant for a snapshot, those that end in the order they do.

        None stands for one that comes later, so that whoever takes slices takes even ones.
        """
        held, ending, void = self.held.copy(), list(self.ending), self._void.copy()

        def rows() -> Iterator[list[Any] | None]:
            for name, packed in held.items():
                each = unpack(packed)
                yield None if _is_in_line(each) else [name.hex(), *each]
            for name in ending:
                if name in void:
                    self._skip(void, name)
                elif name in held:
                    each = unpack(held[name])
                    yield [name.hex(), *each] if _is_in_line(each) else None

        return rows()

    def dump(self) -> list[list[Any]]:
        return [row for row in self.rows() if row is not None]

    def load(self, rows: list[list[Any]]) -> None:
        for text, *rest in rows:
            name, held = bytes.fromhex(text), Held(*rest)
            self.held[name] = pack(held)
            if _is_in_line(held):
                self.ending.append(name)
            elif held.ends:
                self.expiring.append((held.ends, name))
        heapify(self.expiring)


def _is_in_line(held: Held) -> bool:
    """Whether an idempotency key waits for its end; those have no `until`."""
    return bool(held.ends) and not held.until


def idempotency(by: str, key: str | None) -> Name:
    return _name("idempotency", by, key)


def dedup(by: str, key: str | None) -> Name:
    return _name("dedup", by, key)


def _name(kind: str, by: str, key: str | None) -> Name:
    owner = "" if by == LOCAL else by  # who once had no name, and keeps the keys of then
    text = f"{kind}\0{owner}\0{key or ''}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
