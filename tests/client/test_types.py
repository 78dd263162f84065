"""What a type checker says of a program that uses the client, and whether the types are true."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from support.server_process import REPOSITORY

from rota.client import fields, models, work_models
from rota.client.words import OTHER_NAMES, reader, wire, wire_name
from rota.config import RetrySettings
from rota.domain import schedule, workflow
from rota.domain.bulk import LIVE
from rota.domain.notes import LEVELS
from rota.domain.task import TaskState
from rota.domain.tokens import ROLES
from rota.http import agents, answers, bulk_models, flow_models, lease_models, project_models
from rota.http import models as bodies
from rota.http import project_answers as projects
from rota.http import schedule_models as schedules
from rota.http import work_answers as work
from rota.http.v1 import events
from rota.sections import SchedulerSettings

PROGRAM = """
from datetime import datetime

from rota.client import Context, GraphTask, RotaClient, SyncRotaClient, TaskBody, Worker

rota = SyncRotaClient()
task = rota.submit("echo", agent="me", params={"n": 1}, timeout_s=5, retry={"max_attempts": 3})
found = rota.wait(task.task_id, timeout_s=10)
started: datetime | None = found.started_at
lasted: float | None = found.latency_s
bodies: list[TaskBody] = [{"action": "echo", "agent": "me", "delay_s": 0.5}]
ids: list[str] = [each.task_id for each in rota.submit_many(bodies)]
graph: list[GraphTask] = [{"action": "a", "ref": "x"}, {"action": "b", "depends_on": ["ref:x", 0]}]
counts: dict[str, int] = rota.wait_batch(rota.submit_batch(graph, agent="me").batch_id).counts
rota.submit_workflow(graph, agent="me", on_failure="cancel", failure={"count": 2})
rota.create_schedule("s", "@daily", task={"action": "echo", "agent": "me"}, jitter_s=3)
rota.add_to_project("p", "echo", agent="me", before="tsk_1")
rota.edit_project_task("p", "tsk_1", timeout_s=4, position=0)
rota.cancel_many(agent="me", older_than_s=3600, dry_run=True, state=["ready", "running"])
rota.tasks(state=["succeeded", "failed"])
rota.workflows(state="running")
rota.create_token("n", "submit", agents=["me"], expires_s=60)
rota.reprioritise("tsk_1", "high")
rota.change_limits(max_inflight=40, sticky_s=0.5, result_ttl_s=60)
for lease in rota.lease("w", actions=["fit"], wait_s=5, lease_s=30).leases:
    rota.fail(lease.lease_id, lease.token, "no", retry_after_s=5)
for event in rota.iter_events(task_id="tsk_1"):
    print(event.at.year, event.kind)
print(rota.result("tsk_1")["any"])


async def story() -> None:
    async with RotaClient() as away:
        state: str = (await away.get("tsk_1")).state
        print(state, [each.action async for each in away.iter_tasks(workflow_id="wfl_1")])


worker = Worker()


@worker.task("greet")
def greet(ctx: Context) -> str:
    ctx.log("x", level="shout")  # wrong
    ctx.log("x", level="warning")
    return ctx.task.action


rota.submit("echo", agentId="me")  # wrong
rota.submit("echo", agent="me", timeout_ms=5)  # wrong
rota.submit("echo", agent="me", timeout_s="5")  # wrong
rota.submit("echo", agent="me", retry={"maxAttempts": 3})  # wrong
rota.submit_batch([{"action": "a", "dependsOn": [0]}])  # wrong
rota.submit_workflow(graph, on_failure="stop")  # wrong
rota.cancel_many(older_than=5)  # wrong
rota.change_schedule("s", catchUp="all")  # wrong
rota.edit_project_task("p", "tsk_1", before_task="tsk_2")  # wrong
rota.lease("w", types=["fit"])  # wrong
rota.tasks(state="bogus")  # wrong
rota.cancel_many(agent="me", state=["ended"])  # wrong
rota.workflows(state="bogus")  # wrong
rota.steer_workflow("wfl_1", "stop")  # wrong
rota.schedules(state="bogus")  # wrong
rota.iter_agents(state="bogus")  # wrong
rota.create_token("n", role="admn")  # wrong
rota.submit("echo", agent="me", priority="urgent")  # wrong
rota.reprioritise("tsk_1", "urgent")  # wrong
rota.add_logs("tsk_1", ["x"], level="shout")  # wrong
rota.events(view="klingon")  # wrong
rota.change_limits(max_inflght=3)  # wrong
rota.change_limits(maxInflight=3)  # wrong
print(found["state"])  # wrong
print(found.createdAt)  # wrong
"""


def test_a_typo_fails_the_type_check_and_nothing_else_does(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent",
         f"--cache-dir={tmp_path / 'cache'}", "program.py"],
        cwd=tmp_path, env={"MYPYPATH": str(REPOSITORY)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    wrong = {n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    said = {int(n) for n in re.findall(r"program\.py:(\d+): error", checked.stdout)}
    assert said == wrong, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("here", "there", "beside"),
    [
        (fields.RetryFields, RetrySettings, set()),
        (fields.DedupFields, bodies.DedupBody, set()),
        (fields.TaskBody, bodies.SubmitBody, {"type"}),
        (fields.GraphTask, bodies.BatchItem, {"type"}),
        (fields.BatchBody, bodies.BatchBody, set()),
        (fields.WorkflowBody, flow_models.WorkflowBody, set()),
        (fields.FailureFields, flow_models.FailureBody, set()),
        (fields.EscalateFields, flow_models.EscalateBody, set()),
        (fields.EscalationTask, flow_models.EscalationTask, {"type"}),
        (fields.ItemsBody, project_models.ItemsBody, set()),
        (fields.ItemBody, project_models.ItemBody, {"type", "before"}),
        (fields.ItemFields, project_models.ItemBody, {"type", "action"}),
        (fields.ScheduleFields, schedules.ScheduleBody, {"name", "cron"}),
        (fields.ScheduleChanges, schedules.SchedulePatch, set()),
        (fields.Want, lease_models.FilterBody, set()),
        (fields.Outcome, lease_models.OutcomeItem, {"workerId"}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_can_be_said_is_what_the_server_takes(here, there, beside):
    asked = {wire_name(name) for name in get_type_hints(here)}
    taken = {field.alias or name for name, field in there.model_fields.items()}
    assert asked == {wire_name(name) if "_" in name else name for name in taken} - beside


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (fields.LiveState, LIVE),
        (fields.State, TaskState),
        (fields.FlowState, workflow.STATES),
        (fields.ScheduleState, schedule.STATES),
        (fields.AgentState, agents.STATES),
        (fields.Makes, schedule.KINDS),
        (fields.Level, LEVELS),
        (fields.View, events.KINDS),
        (fields.Role, ROLES),
        (fields.Priority, bodies.PRIORITY_WORDS.keys() - {"medium"}),
    ],
)
def test_words_are_those_that_the_server_knows(here, there):
    assert set(words_of(here)) == set(there)


def words_of(hint):
    """Give the words of a Literal, or of those in a union."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return [word for each in get_args(hint) for word in words_of(each)]


def test_limits_are_the_schedulers_settings():
    settings = {
        each.serialization_alias or each.alias or wire_name(name)
        for name, each in SchedulerSettings.model_fields.items()
    }
    assert {wire_name(name) for name in get_type_hints(fields.Limits)} == settings - {"enabled"}


def test_filters_and_changes_of_tasks_are_known_to_the_server():
    asked = {wire_name(name) for name in get_type_hints(fields.Filters)}
    known = set(bulk_models.BulkBody.model_fields)
    assert asked - {"action"} == known - {"type"}
    changes = {wire_name(name) for name in get_type_hints(fields.ItemChanges)}
    assert changes == {*project_models.ItemPatch.model_fields} - {"type", "agentId"}


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (models.Submitted, answers.Submitted),
        (models.Task, answers.TaskView),
        (models.TaskError, answers.TaskError),
        (models.LogLine, answers.LogLine),
        (models.SubmittedBatch, answers.BatchSubmitted),
        (models.Batch, answers.BatchView),
        (models.SubmittedWorkflow, work.WorkflowSubmitted),
        (models.Workflow, work.WorkflowView),
        (models.Event, answers.EventView),
        (models.Head, answers.HeadView),
        (models.DeadTask, work.DeadView),
        (models.Revived, work.Revived),
        (models.RevivedMany, work.RevivedMany),
        (models.Changed, bulk_models.BulkDone),
        (work_models.QueueStatus, projects.QueueStatus),
        (work_models.ProjectFigures, projects.ProjectFigures),
        (work_models.Project, projects.ProjectView),
        (work_models.Run, projects.RunTasksView),
        (work_models.Schedule, schedules.ScheduleView),
        (work_models.Firing, schedules.FiringView),
        (work_models.Lease, work.LeaseView),
        (work_models.Heartbeat, work.HeartbeatView),
        (work_models.Settled, work.SettledItem),
        (work_models.WorkerInfo, work.WorkerView),
        (work_models.Token, answers.TokenView),
    ],
    ids=lambda each: each.__name__,
)
def test_what_is_read_is_what_the_server_answers(here, there):
    names = {
        field.name: {wire_name(field.name), OTHER_NAMES.get(field.name)}
        for field in dataclasses.fields(here)
    }
    unread = {*there.model_fields} - set().union(*names.values())
    assert unread <= {"count"}
    unsaid = {name for name, known in names.items() if known.isdisjoint(there.model_fields)}
    assert unsaid <= ({"code", "error", "details"} if here is models.Submitted else {"token"})


def test_what_is_read_can_be_said_again():
    answer = {
        "taskId": "tsk_1",
        "agentId": "ann",
        "timeoutMs": 1500,
        "createdAt": "2026-11-18T05:41:12.51Z",
        "params": {"agentId": "is the task's own", "waitMs": 1},
        "retry": {"maxAttempts": 3, "baseMs": 250},
        "ofTomorrow": {"new": True},
    }
    task = reader(models.Task)(answer)
    assert (task.agent, task.timeout_s, task.created_at.minute) == ("ann", 1.5, 41)
    assert task.retry == {"max_attempts": 3, "base_s": 0.25}
    said = {"retry": task.retry, "timeout_s": task.timeout_s, "params": task.params}
    again = wire(said, fields.TaskBody)
    assert again == {name: answer[name] for name in ("retry", "timeoutMs", "params")}
