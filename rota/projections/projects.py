"""The projects: what is on their lists, their runs, and what those come to.

`waiting` are the runs that are pending, first come first served; `killing` are the tasks whose
attempts are being cut off by a force-stop, which keep their slots until those are gone, until they
have ended. A project
stays until somebody deletes it, its last runs and the last of what they did with it; older runs are
in the log, under their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.domain.project import project_of, why_cut
from rota.domain.project_lists import Room
from rota.domain.project_parts import (
    DONE_KEPT,
    IN_PROGRESS,
    RUNS_KEPT,
    Done,
    Figures,
    Item,
    Keyed,
    Project,
    Run,
    cut,
    weight_of_key,
)
from rota.domain.shares import share_of

if TYPE_CHECKING:
    from rota.domain import events as e
    from rota.domain.events import Record
    from rota.domain.task import Task


class Projects:
    """The projects of a shard; `names` leads from items and runs in memory to their projects."""

    def __init__(self) -> None:
        self.by_id: dict[str, Project] = {}
        self.names: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self.running: dict[str, str] = {}
        self.killing: dict[str, str] = {}
        self.keyed: dict[tuple[str, str], str] = {}
        """The projects on whose lists idempotency keys stand for items, by owner and key."""
        self.makers: dict[str, str] = {}
        """Whose share a project takes of those there may be."""
        room = Room.empty()
        self.made, self.items, self.bytes = room.projects, room.items, room.bytes
        self.figures = Figures()
        """Those of the runs of all projects, deleted ones too."""

    def get(self, project_id: str) -> Project | None:
        return self.by_id.get(project_id)

    def of_key(self, by: str, key: str) -> Keyed | None:
        """Give what an idempotency key stands for, on whichever list that is."""
        project = self.by_id.get(self.keyed.get((by, key), ""))
        return project.keys.get((by, key)) if project is not None else None

    def room(self, items_max: int) -> Room:
        return Room(self.made, self.items, self.bytes, items_max)

    def live(self) -> list[str]:
        """Name the projects with a run that has not ended."""
        return [*self.running.values(), *self.waiting.values()]

    def find_item(self, item_id: str) -> Item | None:
        project = self.by_id.get(self.names.get(item_id, ""))
        return project.find(item_id) if project is not None else None

    def find_run(self, run_id: str) -> Run | None:
        project = self.by_id.get(self.names.get(run_id, ""))
        runs = project.runs if project is not None else ()
        return next((run for run in runs if run.id == run_id), None)

    def stop_of(self, task: Task) -> tuple[Project | None, str | None]:
        """Give the project of a task, and why the task is being cut off, if it is."""
        return self.by_id.get(project_of(task) or ""), self.why_cut(task.id)

    def why_cut(self, task_id: str) -> str | None:
        run = self.killing.get(task_id)
        return why_cut(run, self.find_run(run)) if run is not None else None

    # -- lists

    def on_created(self, record: Record[e.ProjectCreated]) -> None:
        self._begin(record.event.project, record, record.event.project)

    def _begin(self, project_id: str, record: Record[Any], agent: str) -> Project:
        project = self.by_id[project_id] = Project(project_id, record.at)
        self._make(project_id, share_of(record.by, agent))
        return project

    def on_added(self, record: Record[e.ProjectTaskAdded]) -> None:
        event = record.event
        project = self.by_id.get(event.project)
        if project is None:
            project = self._begin(event.project, record, event.agent)
        if event.held:
            self._leave_run(project, event.item)
        item = Item(event.item, event.request, record.by, record.at, held=event.held)
        project.put(item, event.before)
        self._count(project, item, 1)
        self.names[item.id] = project.id
        was = event.item if event.held else event.replaces
        if was is not None:
            project.done = [each for each in project.done if each.task != was]
        if not event.held:
            self._keep_key(project, record)
            return
        for known in project.keys.values():
            if item.id in known.items:
                known.items[item.id] = True

    def _keep_key(self, project: Project, record: Record[e.ProjectTaskAdded]) -> None:
        """Let the idempotency key of a request stand for its item, beside the others of it."""
        event = record.event
        plan = event.request.get("plan") or {}
        key, digest = plan.get("idempotency"), plan.get("digest")
        if event.replaces is not None:
            self._forget(project, event.replaces)
        if key is None:
            return
        known, owner = project.keys.get((record.by, key)), share_of(record.by, "")
        if known is None or known.digest != digest:
            self._weigh(project, owner, -known.weight(key) if known is not None else 0)
            known = project.keys[record.by, key] = Keyed(digest, {})
        known.items[event.item] = True
        self.keyed[record.by, key] = project.id
        self._weigh(project, owner, weight_of_key(key))

    def _forget(self, project: Project, item_id: str) -> None:
        """Forget the key of an item that is gone, once all are that it stands for."""
        for (by, key), known in list(project.keys.items()):
            if known.items.get(item_id):
                known.items[item_id] = False
                if not any(known.items.values()):
                    del project.keys[by, key]
                    self._free(project, by, key, known)

    def _free(self, project: Project, by: str, key: str, known: Keyed) -> None:
        self._weigh(project, share_of(by, ""), -known.weight(key))
        if self.keyed.get((by, key)) == project.id:  # else another list has it, in an old log
            del self.keyed[by, key]

    def _leave_run(self, project: Project, item_id: str) -> None:
        """Let a run be without its task, which comes back to the list."""
        run, item = project.run, project.taken
        if run is not None and item is not None and run.task == item_id:
            run.task = project.taken = None
            self._drop(project, item)

    def on_edited(self, record: Record[e.ProjectTaskEdited]) -> None:
        event = record.event
        project, at = self._place(event.project, event.item)
        old = project.items[at]
        item = Item(old.id, event.request, record.by, old.added_at, held=old.held)
        self._replace(project, at, item)

    def on_reprioritised(self, record: Record[e.TaskReprioritised], task: Task) -> None:
        """Give a task that is held on its list its place by its new priority."""
        del record
        project = self.by_id.get(self.names.get(task.id, ""))
        for at, item in enumerate(project.items if project is not None else ()):
            if item.id == task.id and project is not None:
                self._replace(project, at, item.with_priority(task.priority))
                break

    def _replace(self, project: Project, at: int, item: Item) -> None:
        """Put an item in the place of the one that it was; with another priority it moves."""
        old = project.items[at]
        if item.priority == old.priority:
            project.items[at] = item
        else:
            del project.items[at]
            project.put(item, None)
        self._count(project, old, -1)
        self._count(project, item, 1)

    def on_moved(self, record: Record[e.ProjectTaskMoved]) -> None:
        event = record.event
        project, at = self._place(event.project, event.item)
        item = project.items.pop(at)
        project.put(item, event.before)

    def on_removed(self, record: Record[e.ProjectTaskRemoved]) -> None:
        event = record.event
        project, at = self._place(event.project, event.item)
        self._drop(project, project.items.pop(at))
        self._forget(project, event.item)

    def on_deleted(self, record: Record[e.ProjectDeleted]) -> None:
        project = self.by_id.pop(record.event.project)
        for item in project.items:
            self._drop(project, item)
        self.made.give_back(self.makers.pop(project.id))
        for (by, key), known in project.keys.items():
            self._free(project, by, key, known)
        for run in project.runs:
            del self.names[run.id]

    def _place(self, project_id: str, item_id: str) -> tuple[Project, int]:
        project = self.by_id[project_id]
        return project, [item.id for item in project.items].index(item_id)

    def _drop(self, project: Project, item: Item) -> None:
        self._count(project, item, -1)
        del self.names[item.id]

    def _count(self, project: Project, item: Item, by: int) -> None:
        self.items.add(item.owner, by)
        self._weigh(project, item.owner, by * item.size)

    def _weigh(self, project: Project, owner: str, more: int) -> None:
        project.bytes += more
        self.bytes.add(owner, more)

    def _make(self, project_id: str, maker: str) -> None:
        self.makers[project_id] = maker
        self.made.add(maker)

    # -- runs

    def on_queued(self, record: Record[e.RunQueued]) -> None:
        project, wanted = self.by_id[record.event.project], record.event.item
        item = project.find(wanted) if wanted is not None else None
        run = Run(record, item.agent if item is not None else None)
        project.runs.append(run)
        project.figures.starts += 1
        self.figures.starts += 1
        self.names[run.id] = project.id
        self.waiting[run.id] = project.id
        while len(project.runs) > RUNS_KEPT:
            del self.names[project.runs.pop(0).id]

    def on_started(self, record: Record[e.RunStarted]) -> None:
        run = self._run(record.event.run)
        run.state, run.started_at = IN_PROGRESS, record.at
        self.running[run.id] = self.waiting.pop(run.id)

    def on_selected(self, record: Record[e.RunTaskSelected]) -> None:
        event = record.event
        project, at = self._place(event.project, event.item)
        run = self._run(event.run)
        project.taken = project.items.pop(at)
        run.task, run.fate, run.agent = event.item, None, project.taken.agent
        run.taken += 1

    def on_stop_requested(self, record: Record[e.RunStopRequested]) -> None:
        event = record.event
        project = self.by_id.get(event.project)
        run = project.run if project is not None else None
        if run is not None and run.id == event.run:  # else a task of it lives again
            run.on_stop_requested(record)
        self.killing |= dict.fromkeys(event.kills or (), event.run)

    def on_ended(self, record: Record[e.RunEnded]) -> None:
        run = self._run(record.event.run)
        run.on_ended(record)
        self.waiting.pop(run.id, None)
        self.running.pop(run.id, None)
        for figures in (self.by_id[run.project].figures, self.figures):
            figures.on_ended(run)

    def _run(self, run_id: str) -> Run:
        run = self.by_id[self.names[run_id]].run
        assert run is not None, run_id
        assert run.id == run_id, run_id
        return run

    # -- their tasks

    def on_task_ended(self, record: Record[Any], task: Task) -> None:
        """Remember how a task of a project ended; its run goes on from there."""
        plan = task.plan
        if plan is None or plan.project is None:
            return
        self.killing.pop(task.id, None)
        project = self.by_id.get(plan.project)
        if project is None:
            return
        error = cut(_error_of(record, task))
        done = Done(
            task.id, task.state.value, plan.run or "", record.at, error,
            agent=task.agent, action=task.action,
        )  # fmt: skip
        run, item = project.run, project.taken
        if run is not None and item is not None and run.task == task.id:
            run.task, run.fate, run.error = None, done.state, done.error
            run.completed += done.state == "succeeded"
            project.taken = None
        else:
            item = project.find(task.id)  # it was held on the list
            if item is not None:
                project.items.remove(item)
        if item is not None:
            self._drop(project, item)
            project.done.append(done)
            for each in project.done[:-DONE_KEPT]:
                self._forget(project, each.task)
            del project.done[:-DONE_KEPT]
            return
        for at, each in enumerate(project.done):  # it lived again
            if each.task == task.id:
                project.done[at] = done

    def carry_over(self, by_us: int, now: int) -> None:
        """Tell all moments by a clock that was set by so much; nothing has been later than now."""
        for project in self.by_id.values():
            project.created_at = min(project.created_at + by_us, now)
            project.items = [item.carried_over(by_us, now) for item in project.items]
            if project.taken is not None:
                project.taken = project.taken.carried_over(by_us, now)
            for run in project.runs:
                run.carry_over(by_us, now)
            project.done = [
                each._replace(ended_at=min(each.ended_at + by_us, now)) for each in project.done
            ]

    # -- snapshots

    def items_in_order(self) -> list[tuple[str, Item]]:
        """Give what is on all lists, each with its project; items are replaced, never changed."""
        return [(each.id, item) for each in self.by_id.values() for item in each.items]

    def dump_items(self) -> list[list[Any]]:
        """Give what is on all lists, of which there may be much."""
        return [[project, *item.to_row()] for project, item in self.items_in_order()]

    def dump(self) -> dict[str, Any]:
        """Give everything but what is on the lists."""
        return {
            "makers": self.makers,
            "projects": [_row(project) for project in self.by_id.values()],
            "waiting": list(self.waiting),
            "running": list(self.running),
            "killing": self.killing,
            "figures": self.figures.to_row(),
        }

    def load(self, data: dict[str, Any], items: list[list[Any]]) -> None:
        self.by_id = {row[0]: _from_row(row) for row in data["projects"]}
        for project_id, maker in data["makers"].items():
            self._make(project_id, maker)
        for project_id, *row in items:
            self.by_id[project_id].items.append(Item.from_row(row))
        for project in self.by_id.values():
            held = [*project.items, *([project.taken] if project.taken is not None else [])]
            for item in held:
                self._count(project, item, 1)
            there = {item.id for item in held} | {done.task for done in project.done}
            for (by, key), known in project.keys.items():
                known.items.update((each, each in there) for each in known.items)
                self._weigh(project, share_of(by, ""), known.weight(key))
                self.keyed[by, key] = project.id
            self.names |= dict.fromkeys((item.id for item in held), project.id)
            self.names |= dict.fromkeys((run.id for run in project.runs), project.id)
        self.waiting = {run: self.names[run] for run in data["waiting"]}
        self.running = {run: self.names[run] for run in data["running"]}
        self.killing = dict(data["killing"])
        self.figures = Figures.from_row(data["figures"])


def _error_of(record: Record[Any], task: Task) -> str | None:
    """Say why a task did not succeed; one that was cancelled has its reason in the record alone."""
    if task.state.value == "succeeded":
        return None
    return task.error or getattr(record.event, "reason", "") or f"the task was {task.state.value}"


def _row(project: Project) -> list[Any]:
    return [
        project.id,
        project.created_at,
        project.taken.to_row() if project.taken is not None else None,
        [run.to_row() for run in project.runs],
        [list(each) for each in project.done],
        project.figures.to_row(),
        [[*name, known.digest, list(known.items)] for name, known in project.keys.items()],
    ]


def _from_row(row: list[Any]) -> Project:
    project = Project(row[0], row[1])
    project.taken = Item.from_row(row[2]) if row[2] is not None else None
    project.runs = [Run.from_row(each) for each in row[3]]
    project.done = [Done(*each) for each in row[4]]
    project.figures = Figures.from_row(row[5])
    for by, key, digest, items in row[6]:
        project.keys[by, key] = Keyed(digest, dict.fromkeys(items, False))
    return project
