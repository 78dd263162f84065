"""A server with tables of its own, for cases that need executors or receivers."""

import contextlib
import json
import sys

from common import _process

WIDE = {
    "maxQueueSize": 1_000_000,
    "maxPerAgent": 1_000_000,
    "maxInflight": 10_000,
    "maxPerAgentInflight": 10_000,
    "workerCount": 10_000,
}


@contextlib.contextmanager
def configured(folder, **tables):
    """Start a server with this configuration and room for the load; gives port and process."""
    config = folder / "hostile.json"
    config.write_text(json.dumps({"scheduler": WIDE, **tables}))
    command = [sys.executable, "-m", "rota", "serve", "--port", "0"]
    command += ["--data-dir", str(folder / "data"), "--config", str(config)]
    with _process(command) as (port, process):
        yield port, process
