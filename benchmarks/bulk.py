"""How fast are many waiting tasks cancelled by a filter, and for how long is the loop held?

A real server on a real log, in a process of its own. Tasks without a worker wait; one request with
a filter cancels them all, while another connection asks for /health without a pause: the longest
that it waited is the most that the loop was held, with what the request itself takes. In the same
run, some of the same tasks are cancelled one by one over one kept connection.
"""

import http.client
import json
import threading
import time

from common import arguments, percentile, report, rota_server, temp_folder

BATCH = 1000


class Connection:
    """One kept connection."""

    def __init__(self, port):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body)
        self.http.request(method, path, data, {"Content-Type": "application/json"} if data else {})
        response = self.http.getresponse()
        found = json.loads(response.read())
        assert response.status < 300, found
        return found


def fill(client, agent, count):
    """Have tasks wait; give their ids."""
    ids = []
    for _ in range(0, count, BATCH):
        body = {"tasks": [{"agentId": agent, "action": "lift"}] * BATCH}
        ids += [task["taskId"] for task in client.ask("POST", "/v1/batches", body)["tasks"]]
    return ids


def watch(port, over, waits):
    """Ask for /health until it is over; keep how long each answer took."""
    client = Connection(port)
    while not over.is_set():
        began = time.perf_counter()
        client.ask("GET", "/health")
        waits.append(time.perf_counter() - began)


def main():
    args = arguments(
        __doc__.partition("\n")[0], tasks=(100_000, "tasks that wait"), single=(2000, "one by one")
    )
    with temp_folder() as folder, rota_server(folder) as (port, _):
        client = Connection(port)
        singles = fill(client, "one", args.single)[: args.single]
        began = time.perf_counter()
        for task in singles:
            client.ask("POST", f"/v1/tasks/{task}/cancel", {})
        each_s = (time.perf_counter() - began) / len(singles)
        fill(client, "many", args.tasks)
        over, waits = threading.Event(), []
        watcher = threading.Thread(target=watch, args=(port, over, waits))
        watcher.start()
        began = time.perf_counter()
        done = client.ask("POST", "/v1/tasks/cancel", {"agentId": "many"})
        took_s = time.perf_counter() - began
        over.set()
        watcher.join()
        count = done["changed"]
        assert count >= args.tasks, done
    rows = [
        ("cancelled by a filter", count / took_s, "tasks/s", "", None),
        ("cancelled one by one", 1 / each_s, "tasks/s", "", None),
        ("by a filter, of the time one by one", took_s / count / each_s, "", "", None),
        ("a health request meanwhile, longest", max(waits) * 1000, "ms", "", None),
        ("a health request meanwhile, p50", percentile(waits, 0.5) * 1000, "ms", "", None),
    ]
    report("bulk", rows, as_json=args.json)


if __name__ == "__main__":
    main()
