"""What users import: a client of the native API in two faces, and a worker.

    RotaClient       for asyncio: `task = await rota.submit("echo", "me")`
    SyncRotaClient   the same calls, blocking: `task = rota.submit("echo", "me")`
    Worker           takes tasks and runs your functions; raise `Retry` or `Fail` in them
    Task             what both clients answer, as all of models.py and work_models.py
    TaskBody         what is submitted among several, as all of fields.py

What a server refuses is raised as a class of `rota.errors`, with the server's code. A name is
loaded when it is first used, so that whoever blocks need not wait for aiohttp.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.client.client import RotaClient
    from rota.client.context import Context, Fail, Retry
    from rota.client.fields import GraphTask, TaskBody
    from rota.client.models import Task
    from rota.client.sync_client import SyncRotaClient
    from rota.client.worker import Worker

_HOMES = {
    "Context": "context",
    "Fail": "context",
    "GraphTask": "fields",
    "Retry": "context",
    "RotaClient": "client",
    "SyncRotaClient": "sync_client",
    "Task": "models",
    "TaskBody": "fields",
    "Worker": "worker",
}

__all__ = [
    "Context",
    "Fail",
    "GraphTask",
    "Retry",
    "RotaClient",
    "SyncRotaClient",
    "Task",
    "TaskBody",
    "Worker",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
