"""Before a submission is decided: what it depends on that has left memory is read from the log.

A decision takes one turn of the loop and reads no disk, so the message waits while that is read
beside the loop, and comes again with it. Named here is everything whose fate a decision on a
message can ask for: the tasks it depends on, the id it wants, who holds its keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors import messages as m
from rota.domain.batch import Batch
from rota.domain.dependencies import REF
from rota.projections import keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.actors.archive import Archive
    from rota.actors.journal import Journal
    from rota.domain.intake import Request

    Message = m.SubmitTasks | m.SubmitTogether | m.CancelBatch


class Foresight:
    """Looks up what a message will be decided by."""

    def __init__(self, journal: Journal, archive: Archive, resend: Callable[[Any], None]) -> None:
        self._journal = journal
        self._archive = archive
        self._resend = resend

    def lacks(self, message: Message) -> bool:
        """Whether the log must be read first; the message comes again with what was found."""
        lacking = self._archive.lacking(self._subjects(message), message.fetched)
        if lacking:
            self._archive.fetch_for(message, lacking, self._resend)
        return bool(lacking)

    def _subjects(self, message: Message) -> Iterator[str]:
        if isinstance(message, m.CancelBatch):
            yield message.batch
        elif isinstance(message, m.SubmitTogether):
            yield from self._of_batch(message)
        else:
            for request in message.requests:
                yield from self._of_task(request)

    def _of_task(self, request: Request) -> Iterator[str]:
        if request.wanted_id is not None:
            yield request.wanted_id
        for each in request.depends:
            if isinstance(each, str) and not each.startswith(REF):
                yield each
        if request.plan.workflow is not None:
            yield request.plan.workflow
        if request.plan.idempotency is not None:
            yield from self._holder(keys.idempotency(request.by, request.plan.idempotency))
        if request.dedup is not None:
            yield from self._holder(keys.dedup(request.by, request.dedup.key))

    def _of_batch(self, message: m.SubmitTogether) -> Iterator[str]:
        """Name those of its tasks; or, if its key is known, the batch that has it with its own."""
        batch = message.batch
        if batch.idempotency is not None:
            for subject in self._holder(keys.idempotency(batch.by, batch.idempotency)):
                yield subject
                if not self._archive.lacking((subject,), message.fetched):
                    found = self._archive.either(subject, message.fetched)
                    yield from found.tasks if isinstance(found, Batch) else ()
                return
        if batch.wanted_id is not None:
            yield batch.wanted_id
        for request in batch.tasks:
            yield from self._of_task(request)

    def _holder(self, key: keys.Name) -> Iterator[str]:
        """Give the task or batch that holds a key, if one does."""
        held = self._journal.state.keys.find(key, self._journal.now())
        if held is not None:
            yield held.subject
