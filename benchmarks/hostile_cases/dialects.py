"""What clients of a dialect can make the server write into its own log, line by line."""

import json
import re
import subprocess
import sys
import time

from common import RawClient, request_bytes, run_load, temp_folder

MANY = 2000
WITHIN_S = 60
CONFIG = {
    "scheduler": {"maxQueueSize": 10_000, "maxPerAgent": 10_000, "workerCount": 50},
    "webhooks": {"allowHosts": ["127.0.0.1"], "attempts": 1, "timeoutMs": 500},
}
TOLD = {"agentId": "a", "action": "echo", "callbackUrl": "http://127.0.0.1:9/secret"}
TAB = {"agentId": "a", "action": "click", "tabId": "t"}


def cases():
    """Send callbacks to nobody, and tasks that nothing runs; count the lines about them."""
    with temp_folder() as folder:
        (folder / "c.json").write_text(json.dumps(CONFIG))
        command = [sys.executable, "-m", "rota", "serve", "--port", "0"]
        command += ["--data-dir", str(folder / "data"), "--config", str(folder / "c.json")]
        output = folder / "output.txt"
        with output.open("wb") as into:
            server = subprocess.Popen(command, stdout=into, stderr=subprocess.STDOUT)
        try:
            started = time.monotonic()
            while not (found := re.search(r"127\.0\.0\.1:(\d+)", output.read_text())):
                assert time.monotonic() - started < WITHIN_S, output.read_text()
                time.sleep(0.05)
            port = int(found[1])
            run_load(port, [request_bytes("/tasks", TOLD)] * MANY, 16)
            run_load(port, [request_bytes("/tasks", TAB)] * MANY, 16)
            client = RawClient(port)
            while client.get("/v1/stats")["callbacks"]["abandoned"] < MANY:
                assert time.monotonic() - started < WITHIN_S
                time.sleep(0.2)
            client.close()
            spans = int((time.monotonic() - started) // 60) + 1
            text = output.read_text()
        finally:
            server.terminate()
            server.wait(30)
    lines = text.count("was not delivered")
    yield f"lines about {MANY} callbacks that came to nothing", lines, "lines", 20 * spans
    lines = text.count("waits for a worker")
    yield f"lines about {MANY} tasks that nothing runs", lines, "lines", 5 * spans
