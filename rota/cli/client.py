"""`rota submit | get | list | cancel`: one request each to a running server."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import clean, json_option, note, print_json, print_table
from rota.cli.server_options import with_client
from rota.clock import US_PER_MS, US_PER_S, SystemClock, parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from rota.client.client import RotaClient

PAGE_ROWS_MAX = 1000
WAIT_S = "60"
WAIT_S_MAX = 24 * 3600
_AHEAD = re.compile(r"\+(\d{1,9})(ms|s|m|h|d)")
_UNITS_US = {
    "ms": US_PER_MS,
    "s": US_PER_S,
    "m": 60 * US_PER_S,
    "h": 3600 * US_PER_S,
    "d": 86400 * US_PER_S,
}
TASK_FIELDS = ("taskId", "agentId", "action", "state", "priority", "attempt", "createdAt")


class Param(click.ParamType[tuple[str, Any]]):
    """`key=value`, the value being JSON if it parses as such and a string if not."""

    name = "key=value"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, Any]:
        """Split and parse."""
        key, sign, text = str(value).partition("=")
        if not sign or not key:
            self.fail(f"{value!r} is not KEY=VALUE, such as url=https://example.com", param, ctx)
        try:
            return key, json.loads(text)
        except ValueError:
            return key, text


class Params(click.ParamType[dict[str, Any]]):
    """A JSON object."""

    name = "json"

    def convert(self, value: Any, param: Any, ctx: Any) -> dict[str, Any]:
        """Parse."""
        try:
            found = json.loads(value)
        except ValueError as error:
            self.fail(f"not JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail("must be a JSON object, such as '{\"ms\": 100}'", param, ctx)
        return found


class Deadline(click.ParamType[str]):
    """A moment, or how far ahead it is."""

    name = "moment"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Give it as RFC 3339."""
        ahead = _AHEAD.fullmatch(value)
        try:
            if ahead:
                return rfc3339(SystemClock().now_us() + int(ahead[1]) * _UNITS_US[ahead[2]])
            parse_rfc3339(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not like +30s, +5m or 2026-03-08T12:05:00Z", param, ctx)
        return str(value)


class Seconds(click.ParamType[float]):
    """How long to wait; made for an option whose value may be left out."""

    name = "seconds"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Give it as a number."""
        try:
            seconds = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number; write --wait last, or --wait=10", param, ctx)
        if not 0 <= seconds <= WAIT_S_MAX:
            self.fail(f"must be from 0 to {WAIT_S_MAX}", param, ctx)
        return seconds


@click.command("submit")
@click.argument("action")
@click.option("--agent", required=True, help="Whose queue it goes to.")
@click.option("--param", "pairs", type=Param(), multiple=True, help="One param; may be repeated.")
@click.option("--params", type=Params(), help="All params, as a JSON object.")
@click.option("--tab", help="Target tab.")
@click.option("--ref", help="Element on the tab.")
@click.option("--priority", help="Lower is sooner; or critical, high, normal, low.")
@click.option("--deadline", type=Deadline(), help="When it must be done: RFC 3339, or +30s.")
@click.option("--timeout-ms", type=click.IntRange(1), help="How long one attempt may take.")
@click.option("--callback", help="URL that is told when the task ends.")
@click.option(
    "--wait",
    "wait_s",
    type=Seconds(),
    is_flag=False,
    flag_value=WAIT_S,
    help=f"Wait for its end, {WAIT_S} s at most unless given; exit 0 only if it succeeded.",
)
@json_option
@with_client
def submit_command(
    action: str,
    *,
    agent: str,
    pairs: tuple[tuple[str, Any], ...],
    params: dict[str, Any] | None,
    tab: str | None,
    ref: str | None,
    priority: str | None,
    deadline: str | None,
    timeout_ms: int | None,
    callback: str | None,
    wait_s: float | None,
    as_json: bool,
    client: RotaClient,
) -> None:
    """Submit a task that runs ACTION.

    echo, sleep and fail are built in; other actions go to the executor that the server's
    configuration names, or wait for a worker.

    \b
    Examples:
      rota submit echo --agent me --param text=hello --wait
      rota submit sleep --agent me --params '{"ms": 100}' --deadline +30s
    """
    whole = {**(params or {}), **dict(pairs)}
    rank = int(priority) if priority and re.fullmatch(r"-?\d{1,18}", priority) else priority
    answer = client.submit(
        action,
        agent,
        params=whole or params,
        tabId=tab,
        ref=ref,
        priority=rank,
        deadline=deadline,
        timeoutMs=timeout_ms,
        callbackUrl=callback,
    )
    if wait_s is None:
        if as_json:
            print_json(answer)
        else:
            click.echo(clean(answer["taskId"]))
        return
    task = client.wait(answer["taskId"], wait_s)
    show_task(task, as_json=as_json)
    if "completedAt" not in task:
        note(f"still {task['state']} after {wait_s:g} s; later: rota get {task['taskId']}")
    if task["state"] != "succeeded":
        click.get_current_context().exit(1)


@click.command("get")
@click.argument("task_id", metavar="ID")
@json_option
@with_client
def get_command(task_id: str, *, as_json: bool, client: RotaClient) -> None:
    """Show one task.

    \b
    Example:
      rota get tsk_1a2B3c4D
    """
    show_task(client.get(task_id), as_json=as_json)


@click.command("list")
@click.option("--agent", help="Only this agent's.")
@click.option("--state", "states", multiple=True, help="Only in this state; may be repeated.")
@click.option("--action", help="Only of this action.")
@click.option(
    "--limit", type=click.IntRange(1, PAGE_ROWS_MAX), default=50, show_default=True, help="Rows."
)
@click.option("--cursor", help="Go on where the page before ended.")
@click.option("--all", "whole", is_flag=True, help="Every page, not just one.")
@json_option
@with_client
def list_command(
    *,
    agent: str | None,
    states: tuple[str, ...],
    action: str | None,
    limit: int,
    cursor: str | None,
    whole: bool,
    as_json: bool,
    client: RotaClient,
) -> None:
    """List tasks, newest first.

    Those that have not ended, and those that ended within the server's retention; older ones are
    in the log (rota events, rota get).

    \b
    Example:
      rota list --agent me --state ready --state running
    """
    tasks: list[dict[str, Any]] = []
    while True:
        page = client.tasks(
            agent=agent,
            state=",".join(states),
            action=action,
            limit=PAGE_ROWS_MAX if whole else limit,
            cursor=cursor,
        )
        tasks += page["tasks"]
        cursor = page.get("nextCursor")
        if cursor is None or not whole:
            break
    if as_json:
        answer = {"tasks": tasks, "count": len(tasks)}
        print_json({**answer, "nextCursor": cursor} if cursor else answer)
        return
    print_tasks(tasks)
    if cursor:
        note(f"there are more: add --cursor {cursor}, or --all")


@click.command("cancel")
@click.argument("task_id", metavar="ID")
@click.option("--reason", default="", help="Why; kept in the log.")
@json_option
@with_client
def cancel_command(task_id: str, *, reason: str, as_json: bool, client: RotaClient) -> None:
    """Cancel a task that has not ended.

    \b
    Example:
      rota cancel tsk_1a2B3c4D --reason "no longer needed"
    """
    answer = client.cancel(task_id, reason)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{clean(answer['taskId'])} {clean(answer['state'])}")


def show_task(task: dict[str, Any], *, as_json: bool) -> None:
    """Print one task, a field a line."""
    if as_json:
        print_json(task)
        return
    order = [*TASK_FIELDS, *(name for name in task if name not in TASK_FIELDS)]
    print_table(("field", "value"), [(name, shown(task[name])) for name in order if name in task])


def shown(value: Any) -> str:
    """Give a field as text; what is not text as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def print_tasks(tasks: list[dict[str, Any]]) -> None:
    """Print tasks as a table."""
    columns = ("task", "agent", "action", "state", "prio", "attempt", "created", "ms", "error")
    rows = [
        (
            *(task[name] for name in TASK_FIELDS),
            task.get("latencyMs"),
            task.get("error", {}).get("message"),
        )
        for task in tasks
    ]
    print_table(columns, rows)
