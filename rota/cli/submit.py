"""`rota submit`: one task, with all that it can ask for; and its end, if that is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rota.cli.client import show_end
from rota.cli.output import json_option, note, note_wait, print_json
from rota.cli.server_options import with_client
from rota.cli.values import Duration, Moment, Priority, param_options, wait_option
from rota.client.paths import said
from rota.logs import clean

if TYPE_CHECKING:
    from rota.client.sync_client import JsonClient

KNOWN = {
    "idempotent": "the idempotency key stands for this task already",
    "deduplicated": "the dedup key stands for this task already",
}


@click.command("submit")
@click.argument("action")
@click.option("--agent", required=True, help="Whose queue it goes to.")
@param_options
@click.option("--tab", "tabId", help="Target tab.")
@click.option("--ref", help="Element on the tab.")
@click.option("--id", "taskId", help="An id of your own choice.")
@click.option(
    "--priority", type=Priority(), help="Lower is sooner; or critical, high, normal, low."
)
@click.option(
    "--depends-on", "dependsOn", multiple=True, help="A task to succeed first; may be repeated."
)
@click.option(
    "--on-missing",
    "onMissing",
    type=click.Choice(["wait", "fail"]),
    help="What to do about a --depends-on that does not exist.  [default: wait]",
)
@click.option("--delay", "delayMs", type=Duration(), help="Start no sooner than after so long.")
@click.option("--not-before", "notBefore", type=Moment(), help="Start no sooner: RFC 3339, or +5m.")
@click.option("--deadline", type=Moment(), help="When it must be done: RFC 3339, or +30s.")
@click.option("--timeout", "timeoutMs", type=Duration(), help="How long one attempt may take.")
@click.option("--timeout-ms", type=click.IntRange(1), hidden=True)
@click.option(
    "--queue-timeout",
    "queueTimeoutMs",
    type=Duration(),
    help="How long it may be ready without being dispatched.",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(1),
    help="How often to try, 4 times if only another --retry option is given; any of them replaces "
    "the type's policy.",
)
@click.option(
    "--retry-kind",
    type=click.Choice(["exponential", "quadratic", "linear", "fixed"]),
    help="How the pauses between attempts grow.  [default: exponential]",
)
@click.option("--retry-base", type=Duration(), help="The first pause.  [default: 1s]")
@click.option("--retry-max", type=Duration(), help="The longest pause.  [default: 1m]")
@click.option(
    "--retry-multiplier",
    type=click.FloatRange(1),
    help="How much longer each exponential pause is than the one before.  [default: 2]",
)
@click.option("--retry-jitter", type=Duration(), help="A random part of each pause, up to this.")
@click.option(
    "--retry-on",
    multiple=True,
    help="Only on this: timeout, connection, status:503, status:5xx, code:NAME; may be repeated.",
)
@click.option("--workflow", "workflowId", help="A workflow that it joins, which has not ended.")
@click.option("--key", help="Tasks of one key share the server's maxPerKey slots.")
@click.option(
    "--idempotency-key", "idempotencyKey", help="A repeat gives the same task, not a second."
)
@click.option("--dedup-key", help="Only one task of this key at a time.")
@click.option("--dedup-ttl", type=Duration(), help="Nor another for so long after submission.")
@click.option(
    "--dedup-mode",
    type=click.Choice(["reject", "return", "replace"]),
    help="What to do about the one there is.  [default: reject]",
)
@click.option(
    "--on-interrupt",
    "onInterrupt",
    type=click.Choice(["retry", "fail"]),
    help="What to do when the server goes away under an attempt.  [default: retry]",
)
@click.option("--preempt", is_flag=True, help="May take the place of a less urgent task.")
@click.option("--callback", "callbackUrl", help="URL that is told when the task ends.")
@wait_option
@json_option
@with_client
def submit_command(
    action: str,
    *,
    agent: str,
    params: dict[str, Any] | None,
    wait_s: float | None,
    as_json: bool,
    client: JsonClient,
    **options: Any,
) -> None:
    """Submit a task that runs ACTION, which is also its type.

    echo, sleep and fail are built in; other actions go to the executor that the server's
    configuration names, or wait for a worker. Durations are written 500ms, 5s, 2m or 1h.

    \b
    Examples:
      rota submit echo --agent me --param text=hello --wait
      rota submit sleep --agent me --params '{"ms": 100}' --deadline +30s
      rota submit crawl --agent me --id c1 --max-attempts 5 --retry-on timeout
      rota submit index --agent me --depends-on c1 --delay 10s --priority high
    """
    body = {"action": action, "agentId": agent, "params": params, **fields_from(options)}
    answer = client.ask("POST", "/v1/tasks", body=said(body))
    for name, known in KNOWN.items():
        if answer.get(name):
            note(known)
    task_id = answer["taskId"]
    note_wait(answer, action)
    if wait_s is None:
        if as_json:
            print_json(answer)
        else:
            click.echo(clean(task_id))
        return
    show_end(client, task_id, wait_s, as_json=as_json)


def fields_from(options: dict[str, Any]) -> dict[str, Any]:
    """Make a body's fields of the options; those named as on the wire stay as they are."""
    fields = dict(options)
    timeout_ms = fields.pop("timeout_ms")
    if timeout_ms is not None:
        fields["timeoutMs"] = timeout_ms
    if fields["delayMs"] is not None and fields["notBefore"] is not None:
        msg = "give either --delay or --not-before, not both"
        raise click.UsageError(msg)
    fields["dependsOn"] = list(fields["dependsOn"]) or None
    fields["preempt"] = fields["preempt"] or None
    fields["retry"] = _given(
        kind=fields.pop("retry_kind"),
        baseMs=fields.pop("retry_base"),
        maxMs=fields.pop("retry_max"),
        multiplier=fields.pop("retry_multiplier"),
        jitterMs=fields.pop("retry_jitter"),
        maxAttempts=fields.pop("max_attempts"),
        retryOn=list(fields.pop("retry_on")) or None,
    )
    key = fields.pop("dedup_key")
    how = _given(ttlMs=fields.pop("dedup_ttl"), mode=fields.pop("dedup_mode"))
    if how and key is None:
        msg = "--dedup-ttl and --dedup-mode need the key: --dedup-key KEY"
        raise click.UsageError(msg)
    fields["dedup"] = {"key": key, **(how or {})} if key is not None else None
    return fields


def _given(**values: Any) -> dict[str, Any] | None:
    """Give what was given; None if nothing was."""
    return {name: value for name, value in values.items() if value is not None} or None
