"""`rota workers`: who takes tasks."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from support.http_server import Client
from support.leasing import take


def test_workers_are_listed_with_what_they_hold_and_take(rota, client, server):
    plain = Client()
    plain.port = urlsplit(server.url).port or 0
    client.submit("workers-fit", "workers-1")
    [lease] = take(plain, "w-ada", types=["workers-fit"], agents=["workers-1"], labels=["gpu"])
    take(plain, "w-ben", types=["workers-none"])
    shown = rota("workers", "--all").stdout.splitlines()
    rows = {line.split()[0]: line for line in shown}
    assert shown[0].split()[:3] == ["worker", "holds", "waits"]
    assert list(rows)[1:3] == ["w-ben", "w-ada"]
    assert rows["w-ada"].split()[1] == "1"
    assert "workers-fit of workers-1" in rows["w-ada"]
    assert "gpu" in rows["w-ada"]
    assert rows["w-ben"].split()[1] == "0"
    found = {
        row["workerId"]: row for row in json.loads(rota("workers", "--json").stdout)["workers"]
    }
    assert found["w-ada"]["leases"][0]["leaseId"] == lease["leaseId"]


def test_workers_go_on_over_pages(rota, client, server):
    plain = Client()
    plain.port = urlsplit(server.url).port or 0
    for name in ("w-one", "w-two"):
        take(plain, name, types=["workers-none"])
    one = rota("workers", "--limit", "1")
    assert ("w-two" in one.stdout, "w-one" in one.stdout) == (True, False)
    assert "--cursor 1" in one.stderr
    assert "w-one" in rota("workers", "--cursor", "1", "--limit", "1").stdout
