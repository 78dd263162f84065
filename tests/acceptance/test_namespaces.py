"""Two namespaces in one real process: killed, stopped, and with one disk full."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from support.disks import small_disk
from support.kill_harness import audited, rota
from support.server_process import ServerFailed, ServerProcess

from rota.client.sync_client import JsonClient
from rota.errors import RotaError, StorageUnavailable

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("default", "team-a")
CONFIG = {"namespaces": {"team-a": {}}, "scheduler": {"maxQueueSize": 100_000}}
PAD = {"pad": "x" * 20_000}


def folder_of(server: ServerProcess, name: str) -> Path:
    return server.data_dir if name == "default" else server.data_dir / "namespaces" / name


def clients(server: ServerProcess) -> dict[str, JsonClient]:
    return {name: JsonClient(server.url, namespace=name) for name in NAMES}


def load(client: JsonClient, name: str, kept: list[str]) -> None:
    """Submit until nobody answers; keep what was acknowledged."""
    while True:
        try:
            kept.append(client.submit("echo", f"{name}-{len(kept) % 5}")["taskId"])
        except RotaError:
            return


def wait_for(client: JsonClient, task: str, state: str) -> None:
    end = time.monotonic() + 20
    while client.get(task)["state"] != state:
        assert time.monotonic() < end, client.get(task)
        time.sleep(0.01)


def test_both_lose_nothing_when_the_process_is_killed(tmp_path: Path) -> None:
    kept: dict[str, list[str]] = {name: [] for name in NAMES}
    server = ServerProcess(tmp_path / "data", CONFIG)
    for _ in range(3):
        server.start()
        loading = [
            threading.Thread(target=load, args=(client, name, kept[name]))
            for name, client in clients(server).items()
        ]
        for thread in loading:
            thread.start()
        time.sleep(0.5)
        assert server.kill() == -9
        for thread in loading:
            thread.join()
    with server:
        for name, client in clients(server).items():
            assert kept[name]
            for task in kept[name]:
                wait_for(client, task, "succeeded")
            shown = list(client.iter_tasks())  # ids may be the same by chance; these are not
            assert {task["agentId"].rpartition("-")[0] for task in shown} == {name}
    for name in NAMES:
        audit = audited(folder_of(server, name))
        audit.check_all_ended()
        assert audit.kinds["server_started"] == 4
        words = ("--data-dir", str(server.data_dir), "--namespace", name)
        verified = rota("verify", *words)
        assert verified.returncode == 0, verified.stderr
        assert f"head {audit.seq}:" in verified.stdout
        assert f"state after event {audit.seq} of" in rota("replay", *words).stdout


def test_sigterm_stops_both_in_good_order(tmp_path: Path) -> None:
    config = {**CONFIG, "server": {"graceS": 0.8}}
    with ServerProcess(tmp_path / "data", config) as server:
        tasks = {}
        for name, client in clients(server).items():
            short = client.submit("sleep", "a1", params={"ms": 500})["taskId"]
            long = client.submit("sleep", "a2", params={"ms": 60_000})["taskId"]
            for task in (short, long):
                wait_for(client, task, "running")
            tasks[name] = (short, long)
        assert server.stop() == 0
        assert "waiting up to 0.8 s for 4 running attempts" in server.output()
        assert "stopped in good order" in server.output()
    for name, (short, long) in tasks.items():
        audit = audited(folder_of(server, name))
        assert audit.history[-1][1] == "server_stopped"
        assert audit.phase[short] == "succeeded"
        assert [kind for _, kind, task in audit.history if task == long][-1] == (
            "attempt_interrupted"
        )


def test_a_full_disk_of_one_leaves_the_other_its_work(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "3m") as disk:
        config = {**CONFIG, "namespaces": {"team-a": {"dataDir": str(disk / "team-a")}}}
        (disk / "ballast").write_bytes(bytes(1 << 20))
        with ServerProcess(tmp_path / "data", config) as server:
            first, second = clients(server).values()
            kept = []
            with pytest.raises(StorageUnavailable):
                while len(kept) < 2000:
                    kept.append(second.submit("waits", "a1", params=PAD)["taskId"])
            task = first.submit("echo", "a1")["taskId"]
            wait_for(first, task, "succeeded")
            states = {row["name"]: row["state"] for row in first_of(server)["namespaces"]}
            assert states["default"] == "running"
            assert states["team-a"] in ("rebuilding", "read-only")
            (disk / "ballast").unlink()
            end = time.monotonic() + 20
            while True:
                try:
                    kept.append(second.submit("waits", "a1")["taskId"])
                    break
                except StorageUnavailable:
                    assert time.monotonic() < end
                    time.sleep(0.05)
            assert {row["taskId"] for row in second.iter_tasks()} == set(kept)
        audited(tmp_path / "data")
        assert audited(disk / "team-a").kinds["task_submitted"] == len(kept)


def first_of(server: ServerProcess) -> dict[str, list[dict[str, str]]]:
    return JsonClient(server.url, namespace="").namespaces()


def test_one_that_is_damaged_refuses_the_start_and_is_named(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", CONFIG)
    with server:
        pass
    path = folder_of(server, "team-a") / "data.mdb"
    raw = bytearray(path.read_bytes())
    raw[0:8192] = bytes(8192)
    path.write_bytes(raw)
    with pytest.raises(ServerFailed) as failed:
        server.start()
    assert failed.value.returncode == 1
    assert "namespace team-a: " in failed.value.output
    assert audited(server.data_dir).history[-1][1] == "server_stopped", "the default never started"
