"""Tasks and batches by id: what is in memory, and what is only in the log any more.

`here` knows memory and the attic, and never the disk. What leaves memory before its last record is
durable is kept in the attic until then: the log would tell of an earlier time.

The log is read beside the loop, before something is decided: `lacking` says what a decision needs
that is not here, `fetch` reads it, and what was found travels in the message to whoever decides. By
then the world has gone on. Memory goes before what was fetched; and what has left memory since it
was fetched is lacking again. So a decision takes one turn of the loop and reads no disk.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rota.actors.recovery import batch_from_log, task_from_log
from rota.domain.fold import carry_over
from rota.domain.task import Task
from rota.errors import InternalFault, LogUnusable, RotaError, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rota.actors import messages as m
    from rota.actors.host import Host
    from rota.actors.journal import Journal
    from rota.actors.project_messages import AddItems
    from rota.domain.batch import Batch
    from rota.eventlog.port import LogReader
    from rota.projections.steps import Steps

    Asked = (
        m.SubmitTasks | m.SubmitTogether | m.CancelBatch | m.ReviveTask | m.SteerWorkflow | AddItems
    )
    Subject = Task | Batch
    Depth = Literal["bare", "shown", "whole"]

logger = logging.getLogger("rota.archive")

DEPARTURES_KEPT = 4096
"""Whether one left memory since is known for so many departures; what is older is read again."""
ROUNDS_MAX = 5
"""How often is looked again for one decision."""


class Found(NamedTuple):
    """What the log has of an id, and how many had left memory before it was read."""

    value: Subject | None
    is_known: bool
    departures: int


class Fetched(NamedTuple):
    """What was read for one decision: for whom, by which clock, and in how many rounds."""

    found: dict[str, Found]
    by: Archive
    shift: int
    rounds: int


class Archive:
    """Finds what there is and what there was."""

    def __init__(self, journal: Journal, log: LogReader, host: Host) -> None:
        self._journal = journal
        self._tasks = journal.state.tasks
        self._batches = journal.state.batches
        self._log = log
        self._host = host
        self._attic: dict[str, tuple[int, int, Subject]] = {}  # seq, shift, what left
        self._departures = 0
        self._left: dict[str, int] = {}  # who left memory lately, by the number of the departure
        self._unsure_before = 0
        self._tasks.on_forgotten = self._batches.on_forgotten = self._put_away

    # -- memory and the attic

    def here(self, subject: str) -> Subject | None:
        """Give a task or a batch that is in memory, or was when the last records were made."""
        found: Subject | None = self._tasks.by_id.get(subject)
        if found is None:
            found = self._batches.by_id.get(subject)
        return found if found is not None else self._kept(subject)

    def task_here(self, task_id: str) -> Task | None:
        """Give a task, if that is what this is the id of."""
        task = self._tasks.by_id.get(task_id) or self._kept(task_id)
        return task if isinstance(task, Task) else None

    # -- the log

    def fetch(
        self,
        subjects: Sequence[str],
        before: Fetched | None,
        then: Callable[[Fetched], None],
        failed: Callable[[RotaError], None],
        *,
        depth: Depth = "bare",
        is_wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Read what the log has of some, beside the loop, and add it to what was read `before`.

        With `is_wanted` it is only to be shown (`Host.fetch`), and no more is read once that says
        no.
        """
        log, mark = self._log, self._departures
        steps = self._journal.state.steps.copied()
        is_more = before is not None and before.by is self and before.shift == steps.shift
        known = before.found if before is not None and is_more else {}
        rounds = before.rounds + 1 if before is not None else 1
        if rounds > ROUNDS_MAX:
            failed(StorageUnavailable("what this depends on changes too fast", hint="try again"))
            return

        def done(read: dict[str, tuple[Subject | None, bool]]) -> None:
            found = {each: Found(*value, mark) for each, value in read.items()}
            then(Fetched({**known, **found}, self, steps.shift, rounds))

        def not_read(error: BaseException) -> None:
            if isinstance(error, LogUnusable):
                error = StorageUnavailable(error.message, hint="try again later")
            elif not isinstance(error, RotaError):
                logger.error("the log could not be read", exc_info=error)
                error = InternalFault("rota failed to read its log; it was logged")
            failed(error)

        self._host.fetch(
            lambda: from_log(log, subjects, steps, depth, is_wanted), done, not_read, is_wanted
        )

    def fetch_for(
        self,
        message: Asked,
        lacking: Sequence[str],
        resend: Callable[[Any], None],
        *,
        depth: Depth = "bare",
    ) -> None:
        """Read what a message lacks, and send it again with that; who waits hears of a failure."""
        reply, reading_for = message.reply, self._journal.reading_for

        def then(fetched: Fetched) -> None:
            reading_for.remove(reply)
            resend(message._replace(fetched=fetched))

        def failed(error: RotaError) -> None:
            reading_for.remove(reply)
            reply.fail(error)

        reading_for.append(reply)
        self.fetch(lacking, message.fetched, then, failed, depth=depth)

    def lacking(self, subjects: Iterable[str], fetched: Fetched | None) -> list[str]:
        """Give those that are neither here nor among what was fetched, or left since."""
        return [each for each in dict.fromkeys(subjects) if self._lacks(each, fetched)]

    def _lacks(self, subject: str, fetched: Fetched | None) -> bool:
        if self.here(subject) is not None:
            return False
        if fetched is None or fetched.by is not self:
            return True
        found = fetched.found.get(subject)
        return (
            found is None
            or fetched.shift != self._journal.state.steps.shift  # told by another clock
            or found.departures < self._left.get(subject, self._unsure_before)
        )

    def either(self, subject: str, fetched: Fetched | None) -> Subject | None:
        """Give the task or the batch of an id that is not lacking."""
        here = self.here(subject)
        if here is not None:
            return here
        assert fetched is not None, subject
        return fetched.found[subject].value

    def finder(self, fetched: Fetched | None) -> Callable[[str], Task | None]:
        """Give what finds the tasks that are not lacking."""

        def find(task_id: str) -> Task | None:
            found = self.either(task_id, fetched)
            return found if isinstance(found, Task) else None

        return find

    def is_known(self, subject: str, fetched: Fetched | None) -> bool:
        """Whether an id that is not lacking is, or was, a task's or a batch's."""
        if self.here(subject) is not None:
            return True
        assert fetched is not None, subject
        return fetched.found[subject].is_known

    # -- what leaves memory

    def release(self) -> None:
        """Let go of what the log can tell of by now."""
        durable, attic = self._journal.durable_seq, self._attic
        while attic and attic[oldest := next(iter(attic))][0] <= durable:
            del attic[oldest]

    def _put_away(self, subject: Subject) -> None:
        """Keep what is leaving memory until the log can tell of it."""
        left = self._left
        self._departures += 1
        left.pop(subject.id, None)
        left[subject.id] = self._departures
        if len(left) > DEPARTURES_KEPT:
            self._unsure_before = left.pop(next(iter(left)))
        seq = self._journal.state.seq
        if seq > self._journal.durable_seq:
            self._attic.pop(subject.id, None)
            self._attic[subject.id] = (seq, self._journal.state.steps.shift, subject)

    def _kept(self, subject: str) -> Subject | None:
        seq, told_at, kept = self._attic.get(subject, (0, 0, None))
        if kept is None or seq <= self._journal.durable_seq:
            return None
        shift = self._journal.state.steps.shift
        if shift != told_at:  # its moments are told by another clock
            by_us = shift - told_at
            carry_over(kept, by_us) if isinstance(kept, Task) else kept.carry_over(by_us)
            self._attic[subject] = (seq, shift, kept)
        return kept


def from_log(
    log: LogReader,
    subjects: Sequence[str],
    steps: Steps,
    depth: Depth,
    is_wanted: Callable[[], bool] | None = None,
) -> dict[str, tuple[Subject | None, bool]]:
    """Read tasks and batches, and whether there is anything under the id; in any thread.

    A `bare` one comes without what it was given and gave: who decides on a thousand does not hold
    them. A `whole` one may live again.
    """
    known = log.known_of(subjects)
    found: dict[str, tuple[Subject | None, bool]] = {}
    for each in subjects:
        if is_wanted is not None and not is_wanted():
            raise StorageUnavailable("nobody waits for it any more")
        value: Subject | None = None
        if each in known:
            value = task_from_log(log, each, steps, is_whole=depth == "whole")
            if value is None:
                value = batch_from_log(log, each, steps)
            elif depth == "bare":
                value.params_json = value.result_json = None
        found[each] = (value, each in known)
    return found
