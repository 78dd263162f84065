"""The options by which a command finds its server: `--url` and `--token`, or the environment."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from rota.client.client import DEFAULT_URL, RotaClient
from rota.errors import NotFound, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

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


def with_client(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--url` and `--token`, and call it with a client made of them."""

    @url_option
    @token_option
    @wraps(command)
    def call(*args: Any, url: str, token: str | None, **options: Any) -> None:
        try:
            command(*args, client=RotaClient(url, token=token), **options)
        except NotFound as error:
            error.hint = error.hint or "`rota list` shows the tasks of the last minutes"
            raise
        except RequestError as error:
            if error.status == 401:
                error.hint = "give a token with --token or in ROTA_TOKEN"
            raise

    return call
