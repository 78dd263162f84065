"""Projects in the simulation: lists, runs, stops and kills.

`Projects` is the rule, worked out from the records alone: one run of a project at a time, first come
first served; a task is selected when its turn comes, from the head of its list, once in a run; a
stop takes no other and always ends; a run that has ended stays so, and ends for the reason that its
tasks give; the figures are those of the history. `Lists` are the clients that fill lists, change
them, start runs and stop them.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from support.sim_outside import SimReply
from support.sim_rules import FINAL, FLYING, Rule
from support.sim_work import AGENTS

from rota.actors import messages as m
from rota.actors import project_messages as pm
from rota.domain.intake import PRIORITY, Request
from rota.domain.plan import Plan

if TYPE_CHECKING:
    from support.sim_model import Model, ModelTask
    from support.simulation import World

    from rota.domain.events import Record
    from rota.errors import RotaError

NAMES = ("north", "south", "west")
ENDED = ("completed", "failed")
RETRY = {"kind": "fixed", "base_ms": 500, "max_attempts": 3}


class ModelRun:
    """One run, as the model sees it."""

    def __init__(self, event: Any) -> None:
        """Be pending."""
        self.event = event
        self.state = "pending"
        self.stop = ""
        self.task: str | None = None
        self.fate = ""
        self.taken: list[str] = []
        self.completed = 0
        self.is_late = False
        self.moved_at = 0


class ModelProject:
    """One project: its list, its last run, and how often what was."""

    def __init__(self) -> None:
        """Be empty."""
        self.items: list[str] = []
        self.run: ModelRun | None = None
        self.starts = 0
        self.reasons: Counter[str] = Counter()


class Projects(Rule):
    """Lists and runs."""

    def __init__(self, model: Model) -> None:
        """Start with none."""
        super().__init__(model)
        self.known: dict[str, ModelProject] = {}
        self.pending: list[str] = []
        self.running: list[str] = []
        self.killing: dict[str, str] = {}
        self.priorities: dict[str, int] = {}
        self._doomed: set[str] = set()
        self._back: str | None = None  # what was held, and must be on its list again
        self._held: set[str] = set()

    def _live(self, record: Record) -> tuple[ModelProject, ModelRun] | None:
        """Give the run that a record is about, which must not have ended."""
        event: Any = record.event
        project = self.known.get(event.project)
        run = project.run if project is not None else None
        if project is None or run is None or run.event.run != event.run or run.state in ENDED:
            self.violated(f"{event} tells of a run that does not go on")
            return None
        return project, run

    # -- lists

    def on_project_created(self, record: Record) -> None:
        event: Any = record.event
        if event.project in self.known:
            self.violated(f"{event} makes what is there")
        self.known[event.project] = ModelProject()

    def on_project_task_added(self, record: Record) -> None:
        event: Any = record.event
        project = self.known.setdefault(event.project, ModelProject())
        is_known = event.item in self.model.tasks and event.item != self._back
        if is_known or any(event.item in p.items for p in self.known.values()):
            self.violated(f"{event.item} is on a list, and is something else, too")
        self.priorities[event.item] = event.request.get("priority", PRIORITY)
        first = self._put(project, event.item, event.before)
        is_back = event.item == self._back
        if (
            bool(event.held) != is_back
            or (self._back is not None and not is_back)
            or (is_back and not first)
        ):
            self.violated(f"{event} does not put back what was held: {self._back}")
        self._back = None

    def on_project_task_edited(self, record: Record) -> None:
        event: Any = record.event
        self._is_pending(event)
        self.reorder(event.item, event.request.get("priority", PRIORITY))

    def _is_pending(self, event: Any) -> None:
        if event.item not in self.known[event.project].items:
            self.violated(f"{event} changes what has started")

    def _put(self, project: ModelProject, item: str, before: str | None) -> bool:
        """Put an item on a list where its priority lets it be; say whether it is its first there."""
        mine, items = self.priorities[item], project.items
        first = sum(self.priorities[each] < mine for each in items)
        last = sum(self.priorities[each] <= mine for each in items)
        at = items.index(before) if before is not None else last
        items.insert(min(max(at, first), last), item)
        return items.index(item) == first

    def reorder(self, item: str, priority: int) -> None:
        """Let an item whose priority changes be the last of those that have it already."""
        if self.priorities.get(item, priority) == priority:
            return
        self.priorities[item] = priority
        for project in self.known.values():
            if item in project.items:
                project.items.remove(item)
                self._put(project, item, None)

    def on_project_task_moved(self, record: Record) -> None:
        event: Any = record.event
        self._is_pending(event)
        project = self.known[event.project]
        project.items.remove(event.item)
        self._put(project, event.item, event.before)

    def on_project_task_removed(self, record: Record) -> None:
        self._is_pending(record.event)
        event: Any = record.event
        self.known[event.project].items.remove(event.item)
        if event.item in self._held:
            self.model.then.append(("task_cancelled", event.item))

    def is_held(self, task: ModelTask) -> bool:
        """Whether a task waits on its project's list."""
        return task.id in self._held

    def on_task_held(self, task: ModelTask, record: Record) -> None:
        run = self._run_of(task)
        own = run if run is not None and run.task == task.id else None
        if own is not None and not own.stop:
            self.violated(f"{task.id} was held, and its run was not stopped")
        elif (
            own is None
            and getattr(self.model.last and self.model.last.event, "task", "") != task.id
        ):
            self.violated(f"{task.id} was held, and nobody revived it")
        if own is not None:
            own.task = None
        self._back = task.id
        self._held.add(task.id)
        self.model.seen["held"] += 1
        self.model.then.append(("project_task_added", None))

    def on_task_revived(self, task: ModelTask, record: Record) -> None:
        if task.event.project is not None:
            self.model.then.append(("task_held", task.id))

    def on_task_released(self, task: ModelTask, record: Record) -> None:
        event: Any = record.event
        if event.run is None:
            return
        self._held.discard(task.id)
        run = self._run_of(task)
        if run is None or run.task != task.id or run.event.run != event.run:
            self.violated(f"{task.id} is released by a run that has not selected it")
        task.event.run = event.run

    on_task_delayed = on_task_released

    def on_project_deleted(self, record: Record) -> None:
        project = self.known.pop(record.event.project)  # type: ignore[union-attr]
        held = [item for item in project.items if item in self._held]
        self.model.then.extend(("task_cancelled", item) for item in held)
        if project.run is not None and project.run.state not in ENDED:
            self.violated(f"{record.event} drops a project that runs")

    # -- runs

    def on_run_queued(self, record: Record) -> None:
        event: Any = record.event
        project = self.known[event.project]
        if project.run is not None and project.run.state not in ENDED:
            self.violated(f"{event} is a second run of {event.project}")
        project.run = ModelRun(event)
        project.starts += 1
        self.pending.append(event.run)

    def on_run_started(self, record: Record) -> None:
        found = self._live(record)
        if found is None:
            return
        event: Any = record.event
        if self.pending[:1] != [event.run]:
            self.violated(f"{event.run} was started before its turn")
        if len(self.running) >= (self.model.limits.projects or inf):
            self.violated(f"{event.run} was started, and too many run")
        self.pending.remove(event.run)
        self.running.append(event.run)
        found[1].state = "in_progress"
        found[1].moved_at = self.model.steady

    def on_run_task_selected(self, record: Record) -> None:
        event: Any = record.event
        found = self._live(record)
        if found is None:
            return
        project, run = found
        if run.state != "in_progress" or run.task is not None:
            self.violated(f"{event} selects a task where none is to be")
        if run.stop or run.fate not in ("", "succeeded"):
            self.violated(f"{event} goes on where the run has to end")
        if run.event.mode == "single" and run.taken:
            self.violated(f"{event} is a second task of a single run")
        first = run.event.item if run.event.item and not run.taken else None
        if (first or (project.items or [None])[0]) != event.item:
            self.violated(f"{event} was not the next one: {first} of {project.items}")
        if event.item in run.taken or event.item not in project.items:
            self.violated(f"{event.item} was selected twice")
            return
        project.items.remove(event.item)
        run.task, run.fate, run.moved_at = event.item, "", self.model.steady
        run.taken.append(event.item)
        self.model.seen["selected"] += 1
        then = "task_submitted"
        if event.item in self._held:
            task = self.model.tasks[event.item]
            now = self.model.steady if task.is_delay else self.model.at
            is_early = task.not_before is not None and now < task.not_before
            is_early |= bool(task.charged) and self.model.steady < task.next_at  # in its backoff
            then = "task_delayed" if is_early else "task_released"
        self.model.then.append((then, event.item))

    def on_task_submitted(self, task: ModelTask, record: Record) -> None:
        if task.event.project is not None:
            run = self._run_of(task)
            if run is None or run.task != task.id or run.event.run != task.event.run:
                self.violated(f"{task.id} is of a project's run that has not selected it")

    def _run_of(self, task: ModelTask) -> ModelRun | None:
        project = self.known.get(getattr(task.event, "project", None) or "")
        return project.run if project is not None else None

    def is_selected(self, event: Any) -> bool:
        """Whether a task was promised by a list: it is taken whatever waits."""
        return getattr(event, "project", None) is not None

    def on_run_stop_requested(self, record: Record) -> None:
        event: Any = record.event
        project = self.known.get(event.project)
        run = project.run if project is not None else None
        if run is None or run.state in ENDED:
            self._kills_what_lives_again(event)
        elif run.event.run != event.run or (run.stop == "force" and not event.force):
            self.violated(f"{event} asks for less than what was asked for")
        else:
            run.stop = "force" if event.force else "stop"
            run.is_late = run.is_late or event.code == "run_timeout"
            limit_us = self.model.limits.run_timeout_ms * 1000
            if event.code and not 0 < limit_us <= self.model.steady - run.moved_at:
                self.violated(f"{event} ends a run that made progress at {run.moved_at}")
        for task_id in event.kills or ():
            task = self.model.tasks[task_id]
            if task.state != "running" and not (task.is_pull and task.state in FLYING):
                self.violated(f"{event} cuts off {task_id}, which is not under way")
            self.killing[task_id] = event.run
            self.model.seen["killed lease"] += task.is_pull
        self.model.seen["forced" if event.force else "stopped"] += 1

    def _kills_what_lives_again(self, event: Any) -> None:
        """Hold a kill without a run against the tasks that it names."""
        runs = {self.model.tasks[task].event.run for task in event.kills or ()}
        if not event.force or runs != {event.run}:
            self.violated(f"{event} tells of a run that does not go on")
        self.model.seen["killed without a run"] += 1

    def on_task_cancelled(self, task: ModelTask, record: Record) -> None:
        code = record.event.code  # type: ignore[union-attr]
        if task.id in self.killing and code != "internal_fault":
            self.violated(f"{task.id} was cancelled before its attempt was gone")

    def on_task_failed(self, task: ModelTask, record: Record) -> None:
        event: Any = record.event
        code = event.code
        self.model.seen["unconfirmed"] += event.details == {"unconfirmed": True}
        self.model.seen["killed"] += code == "force_stopped" and task.id in self.killing
        run = self._run_of(task)
        if code == "force_stopped" and task.is_pull and task.state in FLYING:
            self.violated(f"{task.id} was cut off, and its worker has it still")
        if code == "force_stopped" and run is not None and run.task == task.id:
            if run.stop != "force":
                self.violated(f"{task.id} was cut off, and its run was not stopped by force")
            elif run.is_late and task.state not in FLYING and task.id not in self._doomed:
                self.violated(f"{task.id} waited, and failed with a run that took too long")

    def follows(self, task: ModelTask) -> str:
        """Say what is in the step that ends an attempt, and has its task wait, if it is stopped."""
        if task.id in self.killing:
            return "task_failed"
        run = self._run_of(task)
        if run is None or run.task != task.id or not run.stop:
            return ""
        return "task_failed" if run.stop == "force" and not run.is_late else "task_held"

    def on_attempt_interrupted(self, task: ModelTask, record: Record) -> None:
        follows, reason = self.follows(task), record.event.reason  # type: ignore[union-attr]
        if follows and not self.model.then and reason not in ("preempted", "internal fault"):
            self.model.then.append((follows, task.id))
        self.on_attempt_failed(task, record)

    def on_attempt_failed(self, task: ModelTask, record: Record) -> None:
        if self.killing.pop(task.id, None) is not None:
            self._doomed.add(task.id)
            self.model.seen["kill overtaken"] += 1

    def on_end(self, task: ModelTask, record: Record) -> None:
        self.killing.pop(task.id, None)
        self._doomed.discard(task.id)
        if task.id in self._held:
            self._held.discard(task.id)
            for project in self.known.values():
                if task.id in project.items:
                    project.items.remove(task.id)
        run = self._run_of(task)
        if run is not None and run.task == task.id:
            run.task, run.fate = None, task.state
            run.completed += task.state == "succeeded"

    # -- how it ends

    def _reason(self, project: ModelProject, run: ModelRun) -> tuple[str, str]:
        """Say how a run ends that has no task under way; nothing if it goes on."""
        if run.stop == "force":
            return "failed", "run_timeout" if run.is_late else "force_stopped"
        if run.state == "pending":
            return ("completed", "stopped") if run.stop else ("", "")
        if run.fate == "failed":
            return "failed", "task_failed"
        if run.stop:
            return "completed", "stopped"
        if run.fate == "cancelled":
            return "failed", "task_cancelled"
        if run.event.mode == "single" and run.taken:
            return "completed", "single_done"
        if run.event.item and not run.taken and run.event.item not in project.items:
            return "failed", "task_gone"
        return ("", "") if project.items else ("completed", "empty")

    def on_run_ended(self, record: Record) -> None:
        event: Any = record.event
        found = self._live(record)
        if found is None:
            return
        project, run = found
        if run.task is not None:
            self.violated(f"{event} ends a run whose task goes on")
        if (event.state, event.reason) != self._reason(project, run):
            self.violated(f"{event} should have been {self._reason(project, run)}")
        if event.completed != run.completed:
            self.violated(f"{event} counts otherwise than its tasks")
        self.model.seen[f"run {event.reason}"] += 1
        run.state = event.state
        project.reasons[event.reason] += 1
        for runs in (self.pending, self.running):
            if event.run in runs:
                runs.remove(event.run)

    def at_rest(self) -> None:
        if self._doomed:
            self.violated(f"{min(self._doomed)} was being cut off, and is to run again")
        if self.pending and len(self.running) < (self.model.limits.projects or inf):
            self.violated(f"{self.pending[0]} is pending although there is room")
        for name, project in self.known.items():
            run = project.run
            if run is None or run.state != "in_progress":
                continue
            if run.task is None:
                self.violated(f"the run of {name} has nothing to do, and goes on")
            elif run.stop == "force" and run.task not in self.killing:
                self.violated(f"{run.task} goes on, and its run was force-stopped")
            elif run.stop and self._waits(run.task):
                self.violated(f"{run.task} waits, and its run was stopped")

    def _waits(self, task_id: str) -> bool:
        return self.model.tasks[task_id].state not in (*FLYING, *FINAL)

    def settled(self) -> None:
        endless = set(filter(self._waits_for_a_worker, self.running))
        for name, project in self.known.items():
            run = project.run
            if run is None or run.state in ENDED or run.event.run in endless:
                continue
            if run.state == "in_progress" or len(endless) < (self.model.limits.projects or inf):
                self.violated(f"the run of {name} never ends")

    def _waits_for_a_worker(self, run_id: str) -> bool:
        """Whether a run goes on with a task that no worker comes for."""
        runs = [project.run for project in self.known.values()]
        [run] = [run for run in runs if run is not None and run.event.run == run_id]
        task = self.model.tasks[run.task] if run.task is not None else None
        return task is not None and task.is_pull and task.state == "ready" and not run.stop


class Lists:
    """Those who have projects."""

    def __init__(self, world: World) -> None:
        """Belong to a world; what they do is drawn apart from all the rest."""
        self._world = world
        self._rng = rng = Random(f"projects {world.seed}")
        self._odds = rng.choice((0.0, 0.0, 0.03, 0.08))
        self.most = rng.choice((0, 1, 2))
        self._keyed: dict[tuple[str, str], tuple[Request, ...]] = {}
        self.run_timeout_ms = rng.choice((0, 5000, 20_000))

    def act(self) -> None:
        """Now and then do something with a project."""
        world, rng = self._world, self._rng
        if world.calm or world.draining or not self._odds or rng.random() >= self._odds:
            return
        if (busy := self._tasks("running")) and rng.random() < 0.4:
            self._tell(pm.StopRun, "force-stop", rng.choice(busy).event.project, "", True)
            return
        if (failed := self._tasks("failed")) and rng.random() < 0.4:
            self._revive(rng.choice(failed))
            return
        known = world.model.projects.known.get(name := rng.choice(NAMES))
        items = list(known.items) if known is not None else []
        what = rng.random()
        if what < 0.05:
            self._tell(pm.CreateProject, "create", name)
        elif what < 0.3 or known is None:
            self._add(name, items)
        elif what < 0.4 and items:
            self._change(name, items)
        elif what < 0.7:
            mode, item = rng.choice(("single", "loop", "loop")), rng.choice((None, *items[:2]))
            self._tell(pm.StartRun, "run", name, mode, item, subject="run_queued")
        elif what < 0.98:
            force = rng.random() < 0.4
            self._tell(pm.StopRun, "force-stop" if force else "stop", name, "", force)
        else:
            self._tell(pm.DeleteProject, "delete", name, "")

    def _tasks(self, state: str) -> list[ModelTask]:
        """Give the tasks of projects that are in a state."""
        tasks = self._world.model.tasks.values()
        return [task for task in tasks if task.state == state and task.event.project]

    def _request(self, name: str) -> Request:
        rng = self._rng
        retry = rng.choice((None, RETRY))
        delay_ms = rng.choice((None, None, None, 700))
        plan = Plan(retry=retry, delay_ms=delay_ms)
        agent = rng.choice((name, rng.choice(AGENTS)))
        is_lent = self._world.work.odds["pull"] and rng.random() < 0.4
        executor = "pull" if is_lent else None
        action = rng.choice(("echo", "sleep"))
        return Request(agent, action, executor, priority=rng.randrange(4), plan=plan)

    def _add(self, name: str, items: list[str]) -> None:
        rng = self._rng
        requests = tuple(self._request(name) for _ in range(rng.choice((1, 1, 3))))
        before = rng.choice((None, None, *items[:1]))
        key = rng.choice((None, None, "k1", "k2", f"k {name}"))
        if key is not None:
            requests = self._keyed.setdefault((name, key), requests)
            plans = [r.plan._replace(idempotency=key, digest=name + key) for r in requests]
            requests = tuple(r._replace(plan=p) for r, p in zip(requests, plans, strict=True))
        self._tell(
            lambda *values: pm.AddItems(*values, is_one_key=key is not None),
            "add", name, requests, before, subject="project_task_added",
        )  # fmt: skip

    def _change(self, name: str, items: list[str]) -> None:
        rng, item = self._rng, self._rng.choice(items)
        how = rng.random()
        if how < 0.3:
            self._tell(pm.RemoveItem, "remove", name, item, "")
        elif how < 0.6:
            self._tell(pm.EditItem, "move", name, item, None, True, rng.choice((None, 0, *items)))
        else:
            fresh = self._request(name)

            def change(was: Request) -> Request:
                return fresh._replace(agent=was.agent, by=was.by)

            self._tell(pm.EditItem, "edit", name, item, change, False, None)

    def _revive(self, task: ModelTask) -> None:
        """Give a task that failed its run a new life: it goes back to the head of its list."""
        world = self._world
        world.trace("revive %s of %s", task.id, task.event.project)
        reply = SimReply(world, "project revive", lambda _: None, lambda _code, _error: None)
        world.shard.queue(task.agent).tell(m.ReviveTask(task.id, "sim", reply))

    def _tell(self, message: Any, kind: str, *values: Any, subject: str = "") -> None:
        world = self._world
        world.trace("%s %s", kind, values)

        def check(answer: Any) -> None:
            world.counts[f"project {kind}"] += 1
            if kind == "add" and len(answer) != len(values[1]):
                world.violated(f"{answer} does not answer for each of {values[1]}")
            for each in answer if isinstance(answer, list) else [answer]:
                if subject:
                    world.acknowledged(
                        each.item if isinstance(each, pm.ItemAdded) else each, subject
                    )

        def check_refusal(code: str, error: RotaError) -> None:
            del error
            world.counts[f"project {code}"] += 1

        reply = SimReply(world, f"project {kind}", check, check_refusal)
        world.shard.projects.tell(message(*values, "sim", reply))

    def compare(self, record: Any) -> None:
        """Hold what is in memory of a project against the model, after a record about it."""
        name = getattr(record.event, "project", None)
        if name is None:
            return
        projects, known = self._world.shard.state.projects, self._world.model.projects.known
        found, project = projects.get(name), known.get(name)
        if (found is None) != (project is None):
            self._world.violated(f"project {name} is not where it should be")
        if found is None or project is None:
            return
        if [item.id for item in found.items] != project.items:
            self._world.violated(f"the list of {name} is not what was put on it")
        there = {each.task for each in found.done} | set(project.items)
        there |= {found.taken.id} if found.taken is not None else set()
        for name_of_key, known in found.keys.items():
            if projects.of_key(*name_of_key) is not known:
                self._world.violated(f"the key {name_of_key} of {name} is another list's, too")
            if known.items != {each: each in there for each in known.items} or there.isdisjoint(
                known.items
            ):
                self._world.violated(f"the key {name_of_key} of {name} stands for {known.items}")
        figures = found.figures
        if (figures.starts, figures.reasons) != (project.starts, dict(project.reasons)):
            self._world.violated(f"the figures of {name} are not those of its history")
        run = project.run
        if run is not None and found.runs[-1].state != run.state:
            self._world.violated(f"the run of {name} is {found.runs[-1].state}, not {run.state}")
