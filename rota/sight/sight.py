"""Whatever is shown to a caller is seen through here.

Of the present: a look at the projections, shown when it is durable (`showing.py`). What has left
memory, and what was recorded (`history.py`), is read from the log beside the loop. Of the past:
`past.py`.

A sight is a caller's. One that is limited says by `may_see` to which agents; it is made with the
bridge of a caller whose token is for those (http/scoped_bridge.py). Every task, every record and
every list passes it here; a batch is seen by whoever may see all of its tasks. The shard as a whole
is seen by `seen`, and by nothing else: its routes are for those who may oversee it (`figures` are
sums, which name nobody).
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from rota.actors.answer import Answer
from rota.domain.batch import Batch
from rota.domain.leases import named_by, no_lease, was_accepted
from rota.domain.task import IN_FLIGHT, READY, Task
from rota.domain.workflow import Workflow
from rota.errors import NotFound
from rota.eventlog.heading import heading_of
from rota.sight import history, past, waiting
from rota.sight.doomed import doomed_by
from rota.sight.feed import read_log
from rota.sight.figures import figures_of
from rota.sight.projects import ProjectSight, shown_to
from rota.sight.room import with_room
from rota.sight.schedules import ScheduleSight
from rota.sight.showing import Showing
from rota.sight.turns import my_turn
from rota.sight.workers import Stop, WorkerRow, may_serve, stops_of, workers_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

    from rota.actors.archive import Archive, Depth, Fetched
    from rota.actors.system import Shard
    from rota.domain.commands import Outcome
    from rota.domain.events import Record
    from rota.domain.wants import Wants
    from rota.eventlog.port import Head, LogReader
    from rota.projections.state import State
    from rota.sight.figures import Figures
    from rota.sight.history import MaySee, Wanted

T = TypeVar("T")
B = TypeVar("B", bound=Batch)
Shown = TypeVar("Shown")

SLICE_TASKS = 2000
"""So many tasks are looked at in one turn of the loop (turns.py)."""


class Sight:
    """What a caller may see of a shard."""

    def __init__(
        self, shard: Shard, showing: Showing | None = None, may_see: MaySee | None = None
    ) -> None:
        """See everything, or what `may_see` allows: it is asked for an agent's name.

        For a record that is no agent's, the shard's own or a batch's, it is asked for None.
        """
        self._shard = shard
        self._showing = showing or Showing(shard)
        self._may_see = may_see

    def limited_to(self, may_see: MaySee) -> Sight:
        return Sight(self._shard, self._showing, may_see)

    @property
    def sees_all(self) -> bool:
        return self._may_see is None

    def may_see(self, agent: str | None) -> bool:
        """Whether an agent's tasks and records may be seen."""
        return self._may_see is None or self._may_see(agent)

    def now(self) -> int:
        """Give the present moment, by the clock as it is set now."""
        self._shard.timekeeper.look()
        return self._shard.journal.now()

    @property
    def projects(self) -> ProjectSight:
        return ProjectSight(self._shard, self._showing, self._may_see)

    @property
    def schedules(self) -> ScheduleSight:
        return ScheduleSight(self._shard, self._showing, self._may_see)

    async def readable(self) -> None:
        """Wait while the state is being rebuilt after a failure, but not for long."""
        await self._showing.readable()

    async def gathered(
        self, gather: Callable[[], Awaitable[T]], show: Callable[[T], Shown]
    ) -> Shown:
        """Show what takes several turns of the loop to gather, when all of it is durable."""
        return await self._showing.shown(gather, show)

    async def checked(self, check: Callable[[], Awaitable[T]]) -> T:
        """Give what a check before a decision lets pass; its refusal is shown when durable."""
        return await self._showing.checked(check)

    # -- tasks and batches

    async def task(self, task_id: str) -> Task:
        """Give a task, from memory or from the log; not to be shown as it is. Raises NotFound."""
        task_id = self._as_unknown(task_id)
        fetched = await self._fetched(lambda _: (task_id,), "shown")
        found = self._archive.either(task_id, fetched)
        if not isinstance(found, Task) or not self.may_see(found.agent):
            raise NotFound("task not found")
        return found

    def is_in_memory(self, task_id: str) -> bool:
        """Whether a task that was found by `task` is still one that can change."""
        return task_id in self._shard.state.tasks.by_id

    async def show_task(self, task_id: str, view: Callable[[Task], T]) -> T:
        """Show a task. Raises NotFound."""
        return await self._showing.shown(partial(self.task, task_id), view)

    async def show_batch(self, batch_id: str, view: Callable[[Batch, list[Task | None]], T]) -> T:
        """Show a batch and its tasks. Raises NotFound."""
        gather = partial(self._batch, batch_id, Batch)
        return await self._showing.shown(gather, lambda found: view(*found))

    async def _batch(self, batch_id: str, kind: type[B]) -> tuple[B, list[Task | None]]:
        """Give a batch and its tasks, which are bare if they have left memory."""
        batch_id = self._as_unknown(batch_id)

        def subjects(fetched: Fetched | None) -> Iterable[str]:
            if self._archive.lacking((batch_id,), fetched):
                return (batch_id,)
            found = self._archive.either(batch_id, fetched)
            return (batch_id, *found.tasks) if isinstance(found, Batch) else (batch_id,)

        fetched = await self._fetched(subjects, "bare")
        batch = self._archive.either(batch_id, fetched)
        if type(batch) is not kind:
            raise NotFound(f"{kind.__name__.lower()} not found")
        tasks = list(map(self._archive.finder(fetched), batch.tasks))
        if not self._may_see_all(tasks):
            raise NotFound(f"{kind.__name__.lower()} not found")
        return batch, tasks

    async def leased(self, names: Iterable[str]) -> dict[str, Task | NotFound]:
        """Give the tasks that leases are, or were, of; not to be shown as they are."""
        ids = {name: _task_of(name) for name in names}
        wanted = {each for each in ids.values() if each is not None}
        find = self._archive.finder(await self._fetched(lambda _: wanted, "bare"))
        found: dict[str, Task | NotFound] = {}
        for name, task_id in ids.items():
            task = find(task_id) if task_id is not None else None
            is_seen = task is not None and self.may_see(task.agent)
            found[name] = task if task is not None and is_seen else no_lease(name)
        return found

    async def was_accepted(
        self, task: Task, token: int, said: Outcome | None, by: str | None
    ) -> bool:
        """Whether a lease that is over ended by this very outcome, as the log tells."""
        if task.token == token and task.state in IN_FLIGHT:
            return False
        await self._showing.settled()
        tell = partial(was_accepted, token=token, said=said, by=by)
        return await self.told(task.id, tell, after=token)

    def why_held(self, task: Task) -> str | None:
        """Say which limit or pause keeps a ready task from a slot."""
        return waiting.why_held(self._shard, task.agent, task.lane) if task.state is READY else None

    async def why_none(self, wants: Wants) -> str | None:
        return await waiting.why_none(self._shard, self._showing, wants)

    async def workers(self, at: int, limit: int) -> tuple[list[WorkerRow], bool]:
        """Give the workers heard of last, from the `at`-th on, and whether there are more.

        What they hold is shown of agents that may be seen; a worker that holds, and came for,
        nothing of those is not.
        """

        async def here() -> None:
            """Look at the present."""

        return await self._showing.shown(
            here, lambda _: workers_of(self._shard, self._may_see, at, limit)
        )

    async def stops(self, worker: str, names: Iterable[str]) -> dict[str, Stop]:
        """Say which of these leases a worker is to stop working on, once that is durable."""

        async def here() -> None:
            """Look at the present."""

        return await self._showing.shown(
            here, lambda _: stops_of(self._shard, self._may_see, worker, names)
        )

    def may_serve(self, agent: str, action: str, requires: str) -> bool:
        """Whether a live worker takes tasks of this kind."""
        return may_serve(self._shard, agent, action, requires)

    async def show_workflow(
        self, workflow_id: str, view: Callable[[Workflow, list[Task | None]], T]
    ) -> T:
        """Show a workflow and its tasks. Raises NotFound."""
        gather = partial(self._batch, workflow_id, Workflow)
        return await self._showing.shown(gather, lambda found: view(*found))

    async def workflows(
        self, is_wanted: Callable[[Workflow], bool], limit: int, before: int = 0
    ) -> tuple[list[Workflow], bool]:
        """Give the newest workflows in memory before a seq, and whether there are more.

        Show them by `gathered`.
        """
        await my_turn()
        flows = sorted(self._shard.state.batches.flows(), key=lambda flow: -flow.seq)
        found: list[Workflow] = []
        looked = 0
        for flow in flows:
            looked += 1 if self._may_see is None else 1 + len(flow.tasks)
            if looked > SLICE_TASKS:
                looked = 0
                await my_turn()
            if (before and flow.seq >= before) or not is_wanted(flow):
                continue
            if not self._may_see_all(map(self._archive.task_here, flow.tasks)):
                continue
            found.append(flow)
            if len(found) > limit:
                break
        return found[:limit], len(found) > limit

    def _may_see_all(self, tasks: Iterable[Task | None]) -> bool:
        """Whether all tasks that belong together may be seen; none at all are nobody's."""
        if self._may_see is None:
            return True
        agents = {task.agent if task is not None else None for task in tasks} or {None}
        return all(map(self._may_see, agents))

    async def page(
        self, is_wanted: Callable[[Task], bool], limit: int, before: int = 0
    ) -> tuple[list[Task], bool]:
        """Give the newest tasks before a seq, and whether there are more; of those in memory.

        They are looked through in slices, callers in turn, so that a million do not hold the loop.
        Show them by `gathered`, and only what is wanted still: the first may have changed before
        the last slice.
        """
        await my_turn()
        kept, now = self._shard.state.tasks, self._shard.state.steps.settled(self.now())
        tasks = kept.in_order()
        end = bisect_left(tasks, before, key=lambda t: t.created_seq) if before else len(tasks)
        found: list[Task] = []
        for looked, task in enumerate(islice(reversed(tasks), len(tasks) - end, None), 1):
            if is_wanted(task) and kept.is_kept(task, now) and self.may_see(task.agent):
                if len(found) == limit:
                    return found, True
                found.append(task)
            if looked % SLICE_TASKS == 0:
                await my_turn()
        return found, False

    async def each_task(self, tell: Callable[[Task], object]) -> None:
        """Go through the tasks in memory, in slices; show what was made of them by `gathered`."""
        await my_turn()
        for looked, task in enumerate(list(self._shard.state.tasks), 1):
            if self.may_see(task.agent):
                tell(task)
            if looked % SLICE_TASKS == 0:
                await my_turn()

    async def failed(self, before: int, limit: int) -> list[tuple[int, Task | None]]:
        """Give the newest failures before a seq, and the tasks that failed by them as they are.

        None stands for one that is not failed by that any more, or not to be seen. Those that have
        left memory come bare, without what they were given: `failed_whole` has it.
        """
        page = await self._read(lambda log: log.failed_before(before, limit))
        ids = [task_id for _, task_id in page]
        find = self._archive.finder(await self._fetched(lambda _: ids, "bare"))
        tasks = [(seq, find(task_id)) for seq, task_id in page]
        return [(seq, t if t is not None and self._failed_by(t, seq) else None) for seq, t in tasks]

    async def failed_whole(self, task_id: str, seq: int) -> Task | None:
        """Give a task that failed by this record with what it was given; None if it lives again."""
        try:
            task = await self.task(task_id)
        except NotFound:
            return None
        return task if self._failed_by(task, seq) else None

    async def doomed_by(self, task_id: str) -> tuple[str, ...]:
        """Name the tasks that the failures of one cancelled; not all of them need be so still."""
        await self._showing.readable()
        await self._showing.settled()
        found = await self._read(lambda log: doomed_by(log, task_id))
        return tuple([each for each, agent in found if self.may_see(agent)])

    def _failed_by(self, task: Task, seq: int) -> bool:
        return task.ended_seq == seq and self.may_see(task.agent)

    # -- what was recorded

    def wanted(
        self,
        kinds: frozenset[str] | None = None,
        task: str | None = None,
        agent: str | None = None,
        project: str | None = None,
    ) -> Wanted:
        """Say which records are wanted, of those that may be seen: for pages and for streams."""
        return history.Wanted(kinds, task, agent, self._may_see, project)

    async def head(self) -> Head:
        return await self._read(lambda log: log.head())

    async def records(self, after: int, limit: int, wanted: Wanted) -> history.Page:
        wanted = wanted._replace(may_see=self._may_see)

        async def found() -> history.Page:
            scan = history.Scan(after, limit, wanted)
            while (page := await read_log(self._shard, scan.go_on)) is None:
                pass
            return page

        return self._shown(await with_room(found))

    async def records_of(self, task_id: str, after: int, limit: int) -> history.Page:
        """Give the next records of one task. Raises NotFound."""
        return self._shown(
            await self._read_of(
                task_id, partial(history.records_of, task_id=task_id, after=after, limit=limit)
            )
        )

    def _shown(self, page: history.Page) -> history.Page:
        """Leave out of a page what its records tell of tasks that may not be seen."""
        if self._may_see is None:
            return page
        found = [
            each._replace(body=shown_to(each.body, heading_of(each.body), self._may_see))
            for each in page.found
        ]
        return page._replace(found=found)

    async def told(
        self, task_id: str, tell: Callable[[Iterator[Record[Any]]], T], after: int = 0
    ) -> T:
        """Give what is made of the records of one task, in a reader's thread. Raises NotFound."""
        return await self._read_of(
            task_id, lambda log: tell(history.replay_task(log, task_id, after))
        )

    async def _read_of(self, task_id: str, read: Callable[[LogReader], T]) -> T:
        """Read something of one task. Raises NotFound if it may not be seen."""
        may_see = self._may_see
        if may_see is None:
            return await self._read(read)
        looked_for = self._as_unknown(task_id)

        def read_allowed(log: LogReader) -> T:
            history.check_seen(log, looked_for, may_see)
            return read(log)

        return await self._read(read_allowed)

    # -- the past

    async def task_at(self, task_id: str, at: past.Moment) -> Task:
        """Give a task as it was after a record, or at a moment. Raises a RequestError."""
        present = await self._present()
        return await self._read_of(task_id, lambda log: past.task_at(log, present, task_id, at))

    async def followed(self, task_id: str) -> past.Followed:
        """Give a copy of a task, to be brought up to date by `news_of`. Raises NotFound."""
        present = await self._present()
        return await self._read_of(task_id, lambda log: past.Followed(log, present, task_id))

    async def news_of(self, followed: past.Followed) -> AsyncIterator[Record[Any]]:
        """Give what was recorded of a task since, and bring the copy up to each record."""
        present = await self._present()
        for record in await self.told(followed.task.id, list, followed.seq):
            if record.seq > present.seq:
                break  # whoever waits for the task is woken by it, too
            followed.add(record, present.steps)
            yield record

    async def _present(self) -> past.Present:
        """Give where the past ends: what is in memory, once that is durable."""
        await self._showing.readable()
        await self._showing.settled()
        now, state = self.now(), self._shard.state
        return past.Present(state.seq, state.steps.copied(), now)

    # -- the shard itself

    async def seen(self, look: Callable[[State], T]) -> T:
        """Look at the projections, and give what was seen when it is durable.

        That is the whole of them, whoever asks: a route that looks here needs the right to.
        """

        async def here() -> State:
            return self._shard.state

        return await self._showing.shown(here, look)

    @property
    def durable_seq(self) -> int:
        return self._shard.journal.durable_seq

    def figures(self) -> Figures:
        """Give how it does at this moment, durable or not: for /health and /metrics."""
        return figures_of(self._shard)

    # -- beside the loop

    @property
    def _archive(self) -> Archive:
        return self._shard.archive

    async def _fetched(
        self, subjects: Callable[[Fetched | None], Iterable[str]], depth: Depth
    ) -> Fetched | None:
        """Read what is not in memory, until nothing is lacking in this very turn of the loop.

        For what is in memory and may not be seen, as much is read as for an id that nothing has:
        else the time that a refusal takes would tell one from the other.
        """
        fetched: Fetched | None = None
        lacking = self._archive.lacking(subjects(fetched), fetched)
        lacking += [f"{each} " for each in subjects(fetched) if self._is_hidden(each)]
        while lacking:
            fetched = await with_room(partial(self._fetch, lacking, fetched, depth))
            lacking = self._archive.lacking(subjects(fetched), fetched)
        return fetched

    async def _fetch(self, lacking: Sequence[str], before: Fetched | None, depth: Depth) -> Fetched:
        answer = Answer()
        self._archive.fetch(
            lacking, before, answer.ok, answer.fail, depth=depth, is_wanted=answer.is_awaited
        )
        fetched: Fetched = await answer.future
        return fetched

    def _as_unknown(self, task_id: str) -> str:
        """Give the id to look for: one that nothing has, for what may not be seen."""
        return f"{task_id} " if self._is_hidden(task_id) else task_id

    def _is_hidden(self, subject: str) -> bool:
        """Whether this is in memory, or on a project's list, and may not be seen."""
        if self._may_see is None:
            return False
        found = self._archive.here(subject)
        if found is None:
            item = self._shard.state.projects.find_item(subject)
            return item is not None and not self._may_see(item.agent)
        tasks = [found] if isinstance(found, Task) else map(self._archive.here, found.tasks)
        return not self._may_see_all(each for each in tasks if isinstance(each, Task))

    async def _read(self, read: Callable[[LogReader], T]) -> T:
        return await with_room(partial(read_log, self._shard, read))


def _task_of(name: str) -> str | None:
    try:
        return named_by(name)[0]
    except NotFound:
        return None
