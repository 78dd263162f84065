"""The options by which a command finds its server and namespace, or the environment that does.

What the server refuses gets a hint here, in the words of the command line.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from rota.cli.output import complain_in_json, note
from rota.client.sync_client import JsonClient
from rota.client.transport import DEFAULT_URL
from rota.errors import RequestError, RotaError, WaitTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UNAUTHORIZED = 401
HINTS = {
    "batch_too_large_for_queue": "`rota config --server` shows the limits; or make it smaller",
    "conflict": "`rota get {taskId}` shows it",
    "dependency_cycle": "leave one of these out of --depends-on",
    "dependency_rejected": "submit that task again, under another id",
    "duplicate": "`rota get {taskId}` shows it; `rota submit --dedup-mode` can replace it",
    "id_taken": "`rota get {taskId}` shows it; or give another --id",
    "idempotency_conflict": "use another idempotency key, or repeat exactly what was sent with it; "
    "a moment like +5m differs each time, --delay does not",
    "admin_first": "`rota token create --name NAME --role admin` makes that one",
    "forbidden": "give another --token; `rota token list` shows what each may do",
    "name_taken": "give another --name; or revoke that one, with `rota token revoke {name}`",
    "namespace_forbidden": "leave out --namespace and ROTA_NAMESPACE, or give another --token",
    "namespace_not_found": "`rota namespaces --namespace default` lists them",
    "missing_dependency": "submit {taskId} first, or wait for it with --on-missing wait",
    "schedule_exists": "`rota schedule edit {name}` changes it; `get` shows it",
    "queue_full": "wait for room, which `rota stats` shows; `rota config --server` has the limits",
}
"""What to type next, by the code of the refusal, with the names that its details have."""
HINTS_BY_MESSAGE = {
    "task not found": "`rota list` shows the tasks of the last minutes; for a batch, "
    "`rota batch get ID`; what waits on a project's list is shown by `rota project tasks PROJECT`, "
    "and taken off by `rota project remove PROJECT ID`",
    "token not found": "`rota token list` shows them",
    "batch not found": "give the id that `rota batch submit` printed",
    "the batch is already finished": "`rota batch get {batchId}` shows it",
}
ANOTHERS_TASK = "of this token's agents"
"""The end of a refusal that no order of submissions mends."""
HINTS_BY_FIELD = {
    "priority": "write a number, or critical, high, normal or low",
    "retry.retryOn": "write timeout, connection, status:503, status:5xx or code:NAME",
}

url_option = click.option(
    "--url",
    envvar="ROTA_URL",
    show_envvar=True,
    default=DEFAULT_URL,
    show_default=True,
    help="Address of the server.",
)
token_option = click.option(
    "--token", envvar="ROTA_TOKEN", show_envvar=True, help="Token, if the server wants one."
)
namespace_option = click.option(
    "--namespace",
    envvar="ROTA_NAMESPACE",
    show_envvar=True,
    metavar="NAME",
    help="Namespace of the server; the default one, unless the token is another's.",
)


def with_client(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--url`, `--token` and `--namespace`, and a client made of them."""

    @url_option
    @token_option
    @namespace_option
    @wraps(command)
    def call(
        *args: Any, url: str, token: str | None, namespace: str | None, **options: Any
    ) -> None:
        try:
            with JsonClient(url, token=token, namespace=namespace, retries=0) as client:
                command(*args, client=client, **options)
        except RotaError as error:
            if isinstance(error, RequestError):
                error.hint = error.hint or hint_for(error)
            if not options.get("as_json"):
                raise
            complain_in_json(error)
            click.get_current_context().exit(1)

    return call


def hint_for(error: RequestError) -> str:
    """Say what to type after a refusal; nothing if that is not known."""
    if error.status == UNAUTHORIZED:
        return "give a token with --token or in ROTA_TOKEN"
    field = str(error.details.get("field", ""))
    for name, hint in HINTS_BY_FIELD.items():
        if field == name or field.startswith(f"{name}."):
            return hint
    if error.message.endswith(ANOTHERS_TASK):
        return "ask with a --token that is for that task's agent as well"
    text = HINTS_BY_MESSAGE.get(error.message) or HINTS.get(error.code, "")
    try:
        return text.format(**error.details)
    except KeyError:
        return ""


def ended_or_not(wait: Callable[[], Any]) -> Any:
    """Give what was waited for, as it is when the time is over, if that comes first."""
    try:
        return wait()
    except WaitTimeout as error:
        return error.last


@contextmanager
def found_later(command: str) -> Iterator[None]:
    """Say how to look again for what goes on, should the wait for it be cut short."""
    try:
        yield
    except RotaError as error:
        error.hint = f"it goes on without you; look again with `{command}`"
        raise
    except KeyboardInterrupt:
        note(f"it goes on without you; look again with `{command}`")
        raise
