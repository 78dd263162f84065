"""`rota replay`, `rota verify` and `rota reindex`: what is done with a data folder, offline.

The first two open the folder for reading only, so they work on a copy, on a folder nobody serves,
and beside a running server.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import complain, json_option, note, print_json, print_table, progress
from rota.cli.shield import RECORDS, REINDEXING, shielded
from rota.cli.task_tables import print_tasks
from rota.cli.verification import INDEX, PAGES, RESTORE, Verified
from rota.clock import parse_rfc3339, perf_s, rfc3339
from rota.errors import ConfigError, LogCorrupt, RotaError
from rota.eventlog.damage import ADVICE
from rota.eventlog.port import Head
from rota.logs import clean
from rota.projections.control import limits_to
from rota.sections import DEFAULT, folder_of
from rota.wording import NAMESPACE

if TYPE_CHECKING:
    from rota.projections.state import State

EXIT_NOT_VERIFIED = 4
SHOWN_AGENTS = 50

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default="rota-data",
    show_default=True,
    help="Folder of the log.",
)
offline_namespace_option = click.option(
    "--namespace",
    envvar="ROTA_NAMESPACE",
    show_envvar=True,
    metavar="NAME",
    default=DEFAULT,
    show_default=True,
    help="Namespace of the folder; give one that lies elsewhere by its own --data-dir.",
)


class Until(click.ParamType[tuple[int | None, int | None]]):
    """A seq or a moment."""

    name = "seq|time"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int | None, int | None]:
        """Give (seq, None) or (None, microseconds)."""
        if re.fullmatch(r"\d{1,18}", value):
            return int(value), None
        try:
            return None, parse_rfc3339(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is neither a seq nor like 2026-03-08T12:05:00Z", param, ctx)


class KeptHead(click.ParamType[Head]):
    """`SEQ:DIGEST`, as GET /v1/events/head gave it."""

    name = "seq:digest"

    def convert(self, value: Any, param: Any, ctx: Any) -> Head:
        found = re.fullmatch(r"(\d{1,18}):([0-9a-fA-F]{64})", value)
        if not found:
            self.fail(f"{value!r} is not a seq, a colon and 64 hexadecimal digits", param, ctx)
        return Head(int(found[1]), bytes.fromhex(found[2]))


@click.command("replay")
@data_dir_option
@offline_namespace_option
@click.option("--until", type=Until(), help="Stop after this seq or moment (RFC 3339).")
@click.option("--no-snapshots", is_flag=True, help="Fold from the first event.")
@click.option("--tasks", "with_tasks", is_flag=True, help="List the tasks as well.")
@json_option
def replay_command(
    data_dir: Path,
    namespace: str,
    until: tuple[int | None, int | None] | None,
    *,
    no_snapshots: bool,
    with_tasks: bool,
    as_json: bool,
) -> None:
    """Fold a log and print the state it adds up to, now or at any time before.

    The digest is a fingerprint of the whole state: equal states have equal ones.

    \b
    Examples:
      rota replay --data-dir rota-data
      rota replay --data-dir rota-data --until 2026-03-08T12:05:00Z --tasks
    """
    until_seq, until_at = until or (None, None)
    with progress("replaying") as report:
        found = shielded(
            "replay",
            folder_in(data_dir, namespace),
            {RECORDS: report},
            until_seq=until_seq,
            until_at=until_at,
            use_snapshots=not no_snapshots,
            with_tasks=with_tasks,
        )
    summary, tasks = found["summary"], found["tasks"]
    if as_json:
        print_json(summary if tasks is None else {**summary, "tasks": tasks})
        return
    print_summary(summary)
    if tasks is not None:
        click.echo()
        print_tasks(tasks)
    if until_seq is not None and until_seq > summary["head"]:
        note(f"the log ends at {summary['head']}, before {until_seq}")


def summary_of(state: State, head: Head) -> dict[str, Any]:
    summary: dict[str, Any] = {"seq": state.seq, "head": head.seq}
    if state.at:
        summary["at"] = rfc3339(state.at)
    return summary | {
        "queue": {"waiting": state.backlog.total, "byAgent": state.backlog.counts()},
        "inflight": {"total": state.slots.total, "byAgent": state.slots.by_agent()},
        "tasksInMemory": dict(Counter(task.state.value for task in state.tasks)),
        "total": {n: v for n, v in state.stats.totals.items() if not n.endswith("_us")},
        "callbacks": {
            "pending": len(state.deliveries.pending),
            "delivered": state.deliveries.delivered,
            "abandoned": state.deliveries.abandoned,
        },
        "paused": sorted(state.control.paused),
        "pausedTypes": sorted(state.control.paused_types),
        "schedulerPaused": state.control.stopped is not None,
        "limits": limits_to(state.control.limits),
        "rules": state.control.rules.to_dict(),
        "digest": state.digest(),
    }


def print_summary(summary: dict[str, Any]) -> None:
    at = summary.get("at", "-")
    click.echo(f"state after event {summary['seq']} of {summary['head']}, {at}")
    click.echo(f"digest {summary['digest']}")
    waiting, inflight = summary["queue"], summary["inflight"]
    click.echo(f"waiting {waiting['waiting']}, in flight {inflight['total']}")
    for name in ("tasksInMemory", "total", "callbacks", "limits"):
        pairs = ", ".join(f"{key} {value}" for key, value in summary[name].items() if value)
        click.echo(f"{name}: {pairs or '-'}")
    if summary["paused"]:
        click.echo(f"paused: {clean(', '.join(summary['paused']))}")
    if summary["pausedTypes"]:
        click.echo(f"paused types: {clean(', '.join(summary['pausedTypes']))}")
    if summary["schedulerPaused"]:
        click.echo("everything is paused")
    agents = sorted({*waiting["byAgent"], *inflight["byAgent"]})
    if agents:
        click.echo()
        rows = [
            (agent, waiting["byAgent"].get(agent, 0), inflight["byAgent"].get(agent, 0))
            for agent in agents[:SHOWN_AGENTS]
        ]
        print_table(("agent", "waiting", "in flight"), rows)
    if len(agents) > SHOWN_AGENTS:
        note(f"and {len(agents) - SHOWN_AGENTS} agents more; --json has them all")


@click.command("verify")
@data_dir_option
@offline_namespace_option
@click.option(
    "--head", "kept", type=KeptHead(), help="A head kept elsewhere, from GET /v1/events/head."
)
@json_option
def verify_command(data_dir: Path, namespace: str, kept: Head | None, *, as_json: bool) -> None:
    """Check a log from its first record to its last.

    That every record continues the hash chain, can be read and folds; that the index and the
    snapshots agree with the records. A whole chain that somebody rewrote, or cut at its end, is
    found out by --head alone. Exit code 4 if anything is wrong.

    \b
    Examples:
      rota verify --data-dir rota-data --head 1200:5e0f...
      rota verify --data-dir rota-data --namespace team-a
    """
    began = perf_s()
    try:
        found = _verify(folder_in(data_dir, namespace), kept)
    except LogCorrupt as error:
        _not_verified(error, as_json=as_json)
    seconds = max(perf_s() - began, 1e-9)
    rate = round(found.head.seq / seconds)
    if as_json:
        print_json(
            {
                "ok": True,
                "seq": found.head.seq,
                "digest": found.head.digest.hex(),
                "tasks": found.tasks,
                "snapshots": found.snapshots,
                "state": found.digest,
                "seconds": round(seconds, 3),
                "eventsPerSecond": rate,
                **({"keptHead": kept.seq} if kept is not None else {}),
            }
        )
        return
    click.echo(
        f"verified {found.head.seq} events, {found.tasks} tasks and {found.snapshots} snapshots "
        f"in {seconds:.2f} s ({rate} events/s)"
    )
    click.echo(f"head {found.head.seq}:{found.head.digest.hex()}")
    if kept is not None:
        click.echo(f"matches the kept head {kept.seq}:{kept.digest.hex()}")


def folder_in(data_dir: Path, namespace: str) -> Path:
    """Give the folder of a namespace's log, and say whose it is. Raises ConfigError."""
    if not re.fullmatch(NAMESPACE, namespace):
        msg = f"{namespace!r} is no name of a namespace"
        raise ConfigError(msg, hint="small letters, digits and -; `default` lies in --data-dir")
    if namespace != DEFAULT:
        note(f"reading namespace {namespace}")
    return folder_of(namespace, data_dir)


def _verify(data_dir: Path, kept: Head | None) -> Verified:
    """Verify with bars, in a process that a damaged page may kill."""
    head = None if kept is None else [kept.seq, kept.digest.hex()]
    with progress(PAGES) as pages, progress(RECORDS) as records, progress(INDEX) as index:
        reports = {PAGES: pages, RECORDS: records, INDEX: index}
        found = shielded("verify", data_dir, reports, kept=head)
    seq, digest = found["head"]
    return Verified(**{**found, "head": Head(seq, bytes.fromhex(digest))})


@click.command("reindex")
@data_dir_option
@offline_namespace_option
@json_option
def reindex_command(data_dir: Path, namespace: str, *, as_json: bool) -> None:
    """Make a log anew from its records, with all indexes, when `rota verify` advises it.

    Every record is checked and written to a new file, which takes the place of the old one when it
    is whole: so there must be room for both. No record is changed, and a log with a damaged record
    is left as it is. The server must be stopped.

    \b
    Example:
      rota reindex --data-dir rota-data
    """
    with progress(RECORDS) as records:
        seq, digest = shielded(REINDEXING, folder_in(data_dir, namespace), {RECORDS: records})
    if as_json:
        print_json({"ok": True, "seq": seq, "digest": digest})
        return
    click.echo(f"made the indexes of {seq} events anew")
    click.echo(f"head {seq}:{digest}")


def _not_verified(error: RotaError, *, as_json: bool) -> None:
    hint = RESTORE if error.hint == ADVICE else error.hint
    if as_json:
        seq = error.details.get("seq")
        print_json({"ok": False, "seq": seq, "error": error.message, "hint": hint})
    complain(f"verification failed: {error.message}", hint)
    click.get_current_context().exit(EXIT_NOT_VERIFIED)
