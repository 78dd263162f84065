"""A record that was damaged behind a running server's back: said, logged once, shown by health."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import lmdb

from rota.errors import LogUnusable

if TYPE_CHECKING:
    import pytest
    from support.http_server import Rota, Servers

    from rota.server import Server


def flip(rota: Rota, text: bytes) -> None:
    """Change one byte of a record in the file, which the server has mapped; in old copies, too."""
    path = rota.folder / "data" / "data.mdb"
    handle = os.open(path, os.O_RDWR)
    for found in re.finditer(re.escape(text), path.read_bytes()):
        os.pwrite(handle, b"X", found.start())
    os.close(handle)


def test_a_broken_record_is_named_and_health_says_so_from_then_on(
    serve: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    rota = serve()
    task = rota.post("/v1/tasks", {"agentId": "ann", "action": "marked-once"}).json["taskId"]
    rota.restart()
    assert rota.get("/health").json["status"] == "ok"
    flip(rota, b"marked-once")
    seqs = set()
    for path in ("/v1/events?after=0", f"/v1/tasks/{task}/events", "/v1/events?after=0"):
        answer = rota.get(path)
        assert (answer.status, answer.code) == (500, "log_corrupt"), answer
        assert answer.json["retryable"] is False
        seq = answer.json["details"]["seq"]
        assert f"record {seq} does not match its digest" in answer.json["error"]
        assert "restore the data folder" in answer.json["error"]
        seqs.add(seq)
    assert len(seqs) == 1
    assert sum("the log is damaged" in line for line in caplog.messages) == 1
    health = rota.get("/health").json
    assert (health["status"], health["db"]) == ("degraded", "damaged")
    assert f"record {seqs.pop()} " in health["reason"]
    assert rota.get("/health/ready").status == 200
    assert rota.post("/v1/tasks", {"agentId": "ann", "action": "a"}).status == 202


def test_an_index_that_gives_another_tasks_records_is_damage(serve: Servers) -> None:
    """One bit in a seq of the index: the record there is good, and about somebody else."""
    rota = serve()
    mine, other = (rota.ended(rota.submit_native(params={"i": n}))["taskId"] for n in range(2))
    record = rota.events(task=other)[-1]
    rota.stop()
    folder = str(rota.folder / "data")
    with lmdb.open(folder, max_dbs=8, lib_version=0) as env, env.begin(write=True) as txn:
        index = env.open_db(b"by_task", txn=txn, dupsort=True)
        txn.put(mine.encode(), record["seq"].to_bytes(8, "big"), db=index)
    rota.start()
    answer = rota.get(f"/v1/tasks/{mine}/events")
    assert (answer.status, answer.code) == (500, "log_corrupt"), answer
    assert f"record {record['seq']} is not about task {mine}" in answer.json["error"]
    assert rota.get("/health").json["status"] == "degraded"


def test_a_log_that_cannot_be_opened_for_a_while_is_unavailable(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = rota.submit_native()

    def close(server: Server) -> None:
        for name in ("head", "read", "read_task"):
            monkeypatch.setattr(server.shard.log, name, reopened)

    def reopened(*_: object) -> None:
        raise LogUnusable("the log is being reopened")

    rota.inside(close)
    for path in ("/v1/events?after=0", f"/v1/tasks/{task}/events"):
        answer = rota.get(path)
        assert (answer.status, answer.code) == (503, "storage_unavailable"), answer
        assert answer.json["retryable"] is True
        assert "the log is being reopened" in answer.json["error"]
    assert rota.get("/health").json["status"] == "ok"
