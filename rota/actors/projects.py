"""The projects' actor: keeps lists, and carries runs from task to task to their ends.

In: what people ask of lists and runs, and news that something may be due about one. Out: the facts
about items and runs, `task_submitted` for what a run selects, `task_cancelled` for what a stop
takes back. It holds nothing: what is due follows from the projections, so a look at them after a
start or a fault goes on where it was. Attempts are cut off by the worker pool, once the force-stop
is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.actors import project_messages as pm
from rota.actors.derived import place_in
from rota.actors.messages import LookAgain
from rota.actors.runtime import CooperativeActor
from rota.domain.admission import check_ahead, check_same
from rota.domain.attempts import decide_cancel
from rota.domain.intake import take_in
from rota.domain.project import (
    decide_cut,
    decide_kills,
    decide_next,
    decide_room,
    decide_run,
    decide_stop,
    is_under_way,
    progress_ends_at,
    project_of,
    run_of,
)
from rota.domain.project_lists import (
    check_fits,
    decide_additions,
    decide_creation,
    decide_deletion,
    decide_edit,
    decide_move,
    decide_removal,
    known,
    known_items,
    pending_item,
)
from rota.domain.project_parts import RUN_TIMEOUT, Keyed
from rota.projections.keys import idempotency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rota.actors.archive import Archive
    from rota.actors.journal import Journal
    from rota.actors.new_ids import NewIds
    from rota.actors.runtime import Runtime
    from rota.domain.commands import SubmitTask
    from rota.domain.events import Event
    from rota.domain.intake import Request
    from rota.domain.project_parts import Project
    from rota.domain.task import Task
    from rota.projections.projects import Projects


class ProjectsActor(CooperativeActor):
    """Decides about projects."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        *,
        ids: NewIds,
        archive: Archive,
        resend: Callable[[pm.AddItems], None],
        arm: Callable[[int, pm.TimeOutRun], None],
        leaves_nothing: Callable[[str], bool],
    ) -> None:
        """Name items and runs by `ids`.

        `resend` brings a message again whose wanted ids had to be looked for in `archive` first;
        `arm` has a message brought at a moment. Unless its executor `leaves_nothing`, something may
        be left of an attempt that was interrupted.
        """
        super().__init__(runtime)
        self._journal = journal
        self._ids = ids
        self._archive = archive
        self._resend = resend
        self._arm = arm
        self._leaves_nothing = leaves_nothing
        self._asked: dict[type[Any], Callable[[Any], Any]] = {
            pm.CreateProject: self._create,
            pm.AddItems: self._add,
            pm.EditItem: self._edit,
            pm.RemoveItem: self._remove,
            pm.DeleteProject: self._delete,
            pm.StartRun: self._start,
            pm.StopRun: self._end,
        }

    def on_receive(self, message: Any) -> None:
        kind = type(message)
        asked = self._asked.get(kind)
        if asked is not None:
            if kind is not pm.AddItems or not self._lacks(message):
                self._journal.answer_with(message.reply, lambda: asked(message))
        elif kind is pm.LookAtProject:
            self._look(message.project)
        elif kind is pm.StartRuns:
            self._start_runs()
        elif kind is pm.TimeOutRun:
            self._time_out(message.run)
        elif kind is LookAgain:
            self._start_runs()
            for project in dict.fromkeys([*self._projects.live(), *self._killed()]):
                self.actor_ref.tell(pm.LookAtProject(project))

    @property
    def _projects(self) -> Projects:
        return self._journal.state.projects

    # -- lists

    def _lacks(self, message: pm.AddItems) -> bool:
        """Have the ids looked for that clients want for their tasks: they may be taken."""
        wanted = [each.wanted_id for each in message.requests if each.wanted_id is not None]
        lacking = self._archive.lacking(wanted, message.fetched)
        if lacking:
            self._archive.fetch_for(message, lacking, self._resend)
        return bool(lacking)

    def _create(self, message: pm.CreateProject) -> bool:
        self._journal.check_room(message.by, message.project)
        state = self._journal.state
        room = state.projects.room(state.control.limits.project_items)
        project = self._projects.get(message.project)
        event = decide_creation(project, message.project, message.by, room)
        if event is not None:
            self._journal.record(event, by=message.by)
        return event is not None

    def _add(self, message: pm.AddItems) -> list[pm.ItemAdded]:
        self._journal.check_room(message.by, message.requests[0].agent if message.requests else "")
        state, project = self._journal.state, self._projects.get(message.project)
        now = self._journal.now()
        answers: list[pm.ItemAdded] = []
        fresh: dict[str, Request] = {}
        keys = self._keys_of(message)
        if message.is_one_key:
            found = known_items(keys, message.requests[0], message.by)
            if found:
                return [pm.ItemAdded(item, known=True) for item in found]
        for request in message.requests:
            check_fits(request)
            found = [] if message.is_one_key else known_items(keys, request, message.by)
            if found:
                answers.append(pm.ItemAdded(found[0], known=True))
                continue
            command = self._meant(request, now)
            item = self._ids.of_task(command, message.fetched, fresh)
            fresh[item] = request
            key = request.plan.idempotency
            if key is not None:
                keys[message.by, key] = Keyed(request.plan.digest, {item: True})
            answers.append(pm.ItemAdded(item, executor=command.executor))
        room = state.projects.room(state.control.limits.project_items)
        events = decide_additions(
            project, message.project, list(fresh.items()), message.before, room, message.sees
        )
        if events:
            self._journal.record(*events, by=message.by)
        return answers

    def _keys_of(self, message: pm.AddItems) -> dict[tuple[str, str], Keyed]:
        """Give what is known of a request's keys on any list. Raises Unprocessable.

        One that stands for a task or a batch was another request's.
        """
        found: dict[tuple[str, str], Keyed] = {}
        for plan in (request.plan for request in message.requests):
            if plan.idempotency is None:
                continue
            name = message.by, plan.idempotency
            keyed = self._projects.of_key(*name)
            held = self._journal.state.keys.find(idempotency(*name), self._journal.now())
            if keyed is not None:
                found[name] = keyed
            elif held is not None:
                check_same(plan.idempotency, plan.digest, held.digest)
        return found

    def _meant(self, request: Request, now: int) -> SubmitTask:
        """Give what a request would become by the rules of now. Raises InvalidRequest."""
        command = take_in(request, self._journal.state.control.rules, now)
        check_ahead(command.deadline, now)
        return command

    def _edit(self, message: pm.EditItem) -> str:
        self._journal.check_open()
        state, project = self._journal.state, self._projects.get(message.project)
        events: list[Event] = []
        if message.change is not None:
            item = pending_item(project, message.project, message.item, message.sees)
            self._journal.check_room(message.by, item.agent)
            request = message.change(item.request)._replace(by=message.by)
            check_fits(request)
            self._meant(request, self._journal.now())
            room = state.projects.room(state.control.limits.project_items)
            events.append(decide_edit(project, message.project, message.item, request, room))
        if message.moves:
            moved = decide_move(
                project, message.project, message.item, message.before, message.sees
            )
            events += [moved] if moved is not None else []
        if events:
            self._journal.record(*events, by=message.by)
        return message.item

    def _remove(self, message: pm.RemoveItem) -> str:
        project = self._projects.get(message.project)
        event = decide_removal(project, message.project, message.item, message.reason, message.sees)
        cancels = self._cancels([message.item], message.reason or "it was taken off its list")
        self._journal.record(event, *cancels, by=message.by)
        return message.item

    def _cancels(self, items: Iterable[str], reason: str) -> list[Event]:
        """Cancel those of some items that are tasks already, held on their list."""
        tasks = map(self._journal.state.tasks.get, items)
        return [decide_cancel(task, reason) for task in tasks if task is not None]

    def _delete(self, message: pm.DeleteProject) -> int:
        project = self._projects.get(message.project)
        event = decide_deletion(project, message.project, message.reason, message.sees)
        items = [item.id for item in known(project).items]
        cancels = self._cancels(items, message.reason or "its project was deleted")
        self._journal.record(event, *cancels, by=message.by)
        return len(items)

    # -- runs

    def _start(self, message: pm.StartRun) -> str:
        project = self._projects.get(message.project)
        run_id = self._ids.of_run()
        events = decide_run(
            project,
            message.project,
            message.mode,
            run_id,
            message.item,
            message.reason,
            message.sees,
        )
        self._journal.record(*events, by=message.by)
        return run_id

    def _end(self, message: pm.StopRun) -> pm.Stopping:
        project = known(self._projects.get(message.project))
        own = [project.run.id] if project.run is not None else []
        held = self._held(project.id) if message.force else []
        if message.force:
            events = self._cut_off(project, message.reason, held)
        else:
            events = list(decide_stop(project, message.reason, force=False))
        if events:
            self._journal.record(*events, by=message.by)
        runs = dict.fromkeys([*own, *map(run_of, held)])
        return pm.Stopping(tuple(runs), tuple(task.id for task in held))

    def _time_out(self, run_id: str) -> None:
        """End a run that has made no progress for too long: its moment has come."""
        project = self._projects.get(self._projects.names.get(run_id, ""))
        if project is None or project.run is None or project.run.id != run_id:
            return
        kills = [task.id for task in self._kills(project.id)]
        state, run = self._journal.state, project.run
        limit_ms = state.control.limits.run_timeout_ms
        ends_at = progress_ends_at(run, state.tasks.get(run.task or ""), limit_ms)
        if ends_at is None or ends_at > self._journal.now():  # the limit was changed meanwhile
            if ends_at is not None:
                self._arm(ends_at, pm.TimeOutRun(run_id))
            return
        why = f"the run made no progress for {limit_ms} ms"
        events = decide_stop(project, why, force=True, kills=kills, code=RUN_TIMEOUT)
        if events:
            self._journal.record(*events)

    def _cut_off(self, project: Project, reason: str, held: list[Task]) -> list[Event]:
        """End whatever has a slot: the task of the run, and what was brought back to life."""
        run, kills = project.run, self._kills(project.id)
        if run is None:
            events: list[Event] = [*decide_kills(project.id, reason, kills)]
        else:
            named = [task.id for task in kills]
            events = [*decide_stop(project, reason, force=True, kills=named)]
        why = reason or f"project {project.id} was force-stopped"
        own = run.task if run is not None else None
        for task in held:
            if task.id != own and not is_under_way(task):
                events.append(decide_cut(task, why))
        return events

    def _held(self, project: str) -> list[Task]:
        """Give the tasks of a project that have a slot."""
        held = self._journal.state.slots.held()
        return [task for task in held if project_of(task) == project]

    def _kills(self, project: str) -> list[Task]:
        """Give the tasks of a project that are under way, and are not being cut off."""
        killing = self._projects.killing
        held = self._held(project)
        return [task for task in held if is_under_way(task) and task.id not in killing]

    def _killed(self) -> Iterator[str]:
        """Name the projects of what is being cut off."""
        tasks = self._journal.state.tasks
        for each in self._projects.killing:
            task = tasks.get(each)
            project = project_of(task) if task is not None else None
            if project is not None:
                yield project

    def _end_killed(self, project: str) -> None:
        """Fail what was being cut off and does not run: it was interrupted, or its attempt failed.

        It would be tried again, and whoever asked for the kill may have been told that it is gone.
        """
        tasks = self._journal.state.tasks
        for task_id in list(self._projects.killing):
            task, why = tasks.get(task_id), self._projects.why_cut(task_id) or ""
            if task is not None and project_of(task) == project and not is_under_way(task):
                is_sure = self._leaves_nothing(task.executor)
                self._journal.record(decide_cut(task, why, is_sure=is_sure))

    def _start_runs(self) -> None:
        """Start the runs that there is room for, those that came first."""
        projects, most = self._projects, self._journal.state.control.limits.projects
        while projects.waiting:
            run, project = next(iter(projects.waiting.items()))
            event = decide_room(run, project, len(projects.running), most)
            if event is None:
                break
            self._journal.record(event)
            self._look(project)

    def _look(self, project_id: str) -> None:
        """Do what is due about a run: select the next task, take one back, end it."""
        journal, state = self._journal, self._journal.state
        self._end_killed(project_id)
        project: Project | None = self._projects.get(project_id)
        while project is not None and (run := project.run) is not None:
            now = journal.now()
            task = state.tasks.get(run.task) if run.task is not None else None
            place = place_in(state, self._ids, now)
            is_sure = task is None or not task.interruptions or self._leaves_nothing(task.executor)
            events = decide_next(
                project, task, state.control.rules, place, state.tasks.get, is_sure=is_sure
            )
            if not events:
                break
            journal.record(*events, at=now)
        if project is not None and (run := project.run) is not None and run.stop == "force":
            kills = [task.id for task in self._kills(project_id)]  # begun since, or brought back
            events = decide_stop(project, "", force=True, kills=kills) if kills else ()
            if events:
                journal.record(*events)
