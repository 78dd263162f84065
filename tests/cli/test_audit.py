"""`rota replay` and `rota verify`: on a folder at rest, beside a server, and on a damaged copy."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from support.builders import (
    START_US,
    assigned,
    chained,
    history,
    records_of,
    server_started,
    started,
    submitted,
)
from support.server_process import ServerFailed, ServerProcess

from rota.client.sync_client import JsonClient
from rota.clock import rfc3339
from rota.domain.events import Record, TaskLogged
from rota.eventlog.lmdb_store import LmdbLog
from rota.eventlog.port import READ_BYTES_MAX, Snapshot, Stored
from rota.projections.state import SNAPSHOT_VERSION, State

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = 400


@pytest.fixture(scope="session")
def records() -> list[Record]:
    return history(7, EVENTS)[:EVENTS]


@pytest.fixture(scope="session")
def kept(tmp_path_factory, records) -> Path:
    """A folder with a history and one good snapshot."""
    folder = tmp_path_factory.mktemp("kept") / "data"
    log = LmdbLog(folder, map_bytes=1 << 24)
    chain = chained(records)
    log.append(chain, 0, log.claim())
    state = State()
    for record in records[:200]:
        state.apply(record)
    log.save_snapshot(Snapshot(200, chain[199].digest, SNAPSHOT_VERSION, state.dump()))
    log.close()
    return folder


@pytest.fixture
def folder(tmp_path, kept) -> Path:
    """A copy of it that may be damaged."""
    shutil.copytree(kept, tmp_path / "copy")
    return tmp_path / "copy"


def state_after(records: list[Record], seq: int) -> State:
    state = State()
    for record in records[:seq]:
        state.apply(record)
    return state


def damaged(folder: Path, at: bytes) -> None:
    """Flip one bit of the only place where `at` is found."""
    file = folder / "data.mdb"
    raw = bytearray(file.read_bytes())
    raw[raw.index(at)] ^= 1
    file.write_bytes(raw)


# -- replay --------------------------------------------------------------------------------------


def test_replay_gives_the_state_of_the_whole_log(typed, kept, records):
    result = typed("replay", "--data-dir", kept, "--json")
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    state = state_after(records, EVENTS)
    assert summary["seq"] == summary["head"] == EVENTS
    assert summary["digest"] == state.digest()
    assert summary["queue"]["waiting"] == state.backlog.total


@pytest.mark.parametrize("seq", [0, 1, 150, 200, 250, EVENTS])
def test_replay_until_a_seq_gives_the_state_of_then(typed, kept, records, seq):
    words = ("replay", "--data-dir", kept, "--until", seq, "--json")
    digest = state_after(records, seq).digest()
    assert json.loads(typed(*words).stdout)["digest"] == digest
    assert json.loads(typed(*words, "--no-snapshots").stdout)["digest"] == digest


def test_replay_until_a_moment_gives_the_state_of_then(typed, kept, records):
    at = records[249].at
    summary = json.loads(
        typed("replay", "--data-dir", kept, "--until", rfc3339(at), "--json").stdout
    )
    last = max(record.seq for record in records if record.at <= at)  # the clock was set back, too
    assert summary["seq"] == last
    assert summary["digest"] == state_after(records, last).digest()


def test_replay_lists_tasks(typed, kept, records):
    state = state_after(records, 300)
    words = ("replay", "--data-dir", kept, "--until", "300", "--tasks")
    tasks = json.loads(typed(*words, "--json").stdout)["tasks"]
    assert [task["taskId"] for task in tasks] == [task.id for task in state.tasks]
    shown = typed(*words).stdout
    assert "state after event 300 of 400" in shown
    assert all(task.id in shown for task in state.tasks)


def test_replay_lists_tasks_with_large_params(typed, tmp_path):
    large = {"long": "x" * 10_000}
    log = LmdbLog(tmp_path / "data", map_bytes=1 << 24)
    log.append(chained(records_of([submitted(params=large)])), 0, log.claim())
    log.close()
    words = ("replay", "--data-dir", tmp_path / "data", "--tasks", "--json")
    assert json.loads(typed(*words).stdout)["tasks"][0]["params"] == large


def test_replay_tells_what_is_paused(typed, tmp_path):
    with ServerProcess(tmp_path / "data", args=("--paused",)) as process:
        client = JsonClient(process.url)
        client.pause(action="crawl")
        client.pause(agent="me")
    words = ("replay", "--data-dir", tmp_path / "data")
    summary = json.loads(typed(*words, "--json").stdout)
    assert (summary["paused"], summary["pausedTypes"]) == (["me"], ["crawl"])
    assert summary["schedulerPaused"] is True
    shown = typed(*words).stdout
    assert "paused: me\npaused types: crawl\neverything is paused" in shown


def test_replay_of_no_log_says_what_to_give(typed, tmp_path):
    result = typed("replay", "--data-dir", tmp_path / "none")
    assert result.exit_code == 1
    assert "there is no log in" in result.stderr
    assert not (tmp_path / "none").exists()


def test_replay_until_neither_a_seq_nor_a_moment_is_wrong_usage(typed, kept):
    assert typed("replay", "--data-dir", kept, "--until", "yesterday").exit_code == 2


# -- verify --------------------------------------------------------------------------------------


def test_verify_of_a_good_log(typed, kept):
    result = typed("verify", "--data-dir", kept, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["ok"], found["seq"], found["snapshots"]) == (True, EVENTS, 1)
    assert found["eventsPerSecond"] > 0
    text = typed("verify", "--data-dir", kept).stdout
    assert f"head {EVENTS}:{found['digest']}" in text
    assert "events/s" in text


@pytest.mark.parametrize("command", ["verify", "replay"])
def test_the_environment_says_which_namespace_is_read(typed, tmp_path, kept, folder, command):
    data_dir = tmp_path / "served"
    shutil.copytree(kept, data_dir)
    log = LmdbLog(data_dir / "namespaces" / "team-a", map_bytes=1 << 24)
    others = history(8, 20)
    log.append(chained(others), 0, log.claim())
    log.close()
    words = (command, "--data-dir", data_dir, "--json")
    plain = typed(*words)
    assert (json.loads(plain.stdout)["seq"], "namespace" in plain.stderr) == (EVENTS, False)
    named = typed(*words, env={"ROTA_NAMESPACE": "team-a"})
    assert json.loads(named.stdout)["seq"] == len(others)
    assert "reading namespace team-a\n" in named.stderr
    back = typed(*words, "--namespace", "default", env={"ROTA_NAMESPACE": "team-a"})
    assert json.loads(back.stdout)["seq"] == EVENTS
    wrong = typed(command, "--data-dir", folder, env={"ROTA_NAMESPACE": "team-a"})
    assert wrong.exit_code != 0
    assert "team-a" in wrong.stderr


def test_replay_shows_the_rules_beside_the_limits(typed, kept, records):
    summary = json.loads(typed("replay", "--data-dir", kept, "--json").stdout)
    assert summary["rules"] == state_after(records, EVENTS).control.rules.to_dict()


def test_verify_finds_a_flipped_bit_and_names_the_record(typed, folder):
    damaged(folder, b'"seq":123,')
    result = typed("verify", "--data-dir", folder)
    assert result.exit_code == 4
    assert "record 123 does not match its digest" in result.stderr
    assert "restore the data folder" in result.stderr
    found = json.loads(typed("verify", "--data-dir", folder, "--json").stdout)
    assert (found["ok"], found["seq"]) == (False, 123)


def test_verify_compares_with_a_head_kept_elsewhere(typed, kept, records):
    chain = chained(records)
    good = f"250:{chain[249].digest.hex()}"
    matched = typed("verify", "--data-dir", kept, "--head", good)
    assert matched.exit_code == 0
    assert f"matches the kept head {good}" in matched.stdout
    assert "kept head" not in typed("verify", "--data-dir", kept).stdout
    for bad, said in (
        (f"250:{chain[250].digest.hex()}", "is not the one that was kept"),
        (f"{EVENTS + 1}:{bytes(32).hex()}", "records were cut off"),
    ):
        result = typed("verify", "--data-dir", kept, "--head", bad)
        assert result.exit_code == 4
        assert said in result.stderr
    assert typed("verify", "--data-dir", kept, "--head", "250").exit_code == 2


def appended(folder: Path, record: Stored) -> None:
    log = LmdbLog(folder, map_bytes=1 << 24)
    log.append([record], EVENTS, log.claim())
    log.close()


def test_verify_finds_a_record_that_lies_about_its_seq(typed, folder, records):
    lying = Record(7, START_US, submitted("t_new"))
    (item,) = chained([*records, lying])[-1:]
    appended(folder, item._replace(seq=EVENTS + 1))
    result = typed("verify", "--data-dir", folder)
    assert result.exit_code == 4
    assert f"record {EVENTS + 1} says that it is record 7" in result.stderr


@pytest.fixture
def illegal(tmp_path) -> Path:
    """A folder whose third record starts a task that was never assigned."""
    folder = tmp_path / "illegal"
    log = LmdbLog(folder, map_bytes=1 << 24)
    log.append(chained(records_of([server_started(), submitted(), started()])), 0, log.claim())
    log.close()
    return folder


def test_verify_finds_a_move_that_is_not_legal(typed, illegal):
    result = typed("verify", "--data-dir", illegal)
    assert result.exit_code == 4
    assert "record 3 does not fold: TaskStarted is no legal move of task t1" in result.stderr
    assert json.loads(typed("verify", "--data-dir", illegal, "--json").stdout)["seq"] == 3


def test_no_server_starts_on_a_move_that_is_not_legal(illegal):
    with pytest.raises(ServerFailed) as caught:
        ServerProcess(illegal).start()
    assert "Traceback" not in caught.value.output
    assert "record 3 does not fold: TaskStarted is no legal move of task t1, which is ready" in (
        " ".join(caught.value.output.split())
    )
    assert "restore the data folder from a copy" in " ".join(caught.value.output.split())


def test_verify_finds_a_record_missing_from_the_index(typed, folder, records):
    record = Record(EVENTS + 1, records[-1].at, submitted("t_new"))
    (item,) = chained([*records, record])[-1:]
    appended(folder, item._replace(task=None))
    result = typed("verify", "--data-dir", folder)
    assert result.exit_code == 4
    assert f"the index of task t_new and record {EVENTS + 1} do not agree" in result.stderr


def test_verify_reads_on_where_a_task_has_more_than_one_read_gives(typed, tmp_path):
    lines = ["x" * (READ_BYTES_MAX // 3)]
    events = [submitted(), assigned(), started(), *[TaskLogged("t1", "a1", lines)] * 8]
    items = chained(records_of([server_started(), *events]))
    folder = tmp_path / "large"
    log = LmdbLog(folder, map_bytes=1 << 26)
    log.append(items[:-1], 0, log.claim())
    log.close()
    assert typed("verify", "--data-dir", folder).exit_code == 0
    log = LmdbLog(folder, map_bytes=1 << 26)
    log.append([items[-1]._replace(task=None)], len(items) - 1, log.claim())
    log.close()
    result = typed("verify", "--data-dir", folder)
    assert result.exit_code == 4
    assert f"the index of task t1 and record {len(items)} do not agree" in result.stderr


def test_verify_finds_a_snapshot_that_is_not_the_fold(typed, folder, records):
    log = LmdbLog(folder, map_bytes=1 << 24)
    digest = chained(records)[299].digest
    wrong = state_after(records, 299)
    wrong.seq = 300
    log.save_snapshot(Snapshot(300, digest, SNAPSHOT_VERSION, wrong.dump()))
    log.close()
    result = typed("verify", "--data-dir", folder)
    assert result.exit_code == 4
    assert "the snapshot at 300" in result.stderr
    assert "--no-snapshots" in result.stderr


def test_verify_of_a_file_that_is_no_log_fails_with_a_sentence(typed, tmp_path):
    (tmp_path / "data.mdb").write_bytes(b"\1" * 8192)
    result = typed("verify", "--data-dir", tmp_path)
    assert result.exit_code in (1, 4)
    assert "error: " in result.stderr


# -- beside a running server ---------------------------------------------------------------------


def test_audit_of_a_folder_that_is_being_served(typed, tmp_path):
    with ServerProcess(tmp_path / "data") as process:
        client = JsonClient(process.url)
        task = client.wait(client.submit("echo", "a")["taskId"], 10)["taskId"]
        client.submit("wait-here", "a")
        head = client.head()
        kept = f"{head['seq']}:{head['digest']}"
        folder = ("--data-dir", process.data_dir)
        assert typed("verify", *folder, "--head", kept).exit_code == 0
        summary = json.loads(typed("replay", *folder, "--tasks", "--json").stdout)
        shown = client.get(task)
    assert summary["queue"]["waiting"] + summary["inflight"]["total"] == 1
    assert summary["tasks"][0] == shown
    assert typed("verify", *folder, "--head", kept).exit_code == 0
