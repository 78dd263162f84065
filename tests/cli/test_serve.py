"""`rota serve`: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import urllib.request
from itertools import pairwise

import lmdb
import pytest
from click.testing import CliRunner
from support.builders import batch
from support.server_process import ServerFailed, ServerProcess

from rota.cli import main
from rota.client.sync_client import JsonClient
from rota.errors import RotaError
from rota.eventlog.lmdb_store import LmdbLog


def fails_to_start(process: ServerProcess) -> ServerFailed:
    with pytest.raises(ServerFailed) as caught:
        process.start()
    assert "Traceback" not in caught.value.output
    return caught.value


def sent_by_curl(output: str) -> urllib.request.Request:
    """Make the request that the printed curl line would send."""
    line = re.search(r"try: +(curl.*?)\n  data:", output, re.DOTALL)
    words = shlex.split(line[1].replace("\\\n", " "))
    url = next(word for word in words if word.startswith("http"))
    given = dict(pairwise(words))
    header, _, value = given["-H"].partition(": ")
    return urllib.request.Request(url, given["-d"].encode(), {header: value}, method=given["-X"])


def test_says_where_it_listens_and_what_to_try_and_where_the_data_lie(tmp_path):
    with ServerProcess(tmp_path / "data") as process:
        assert f"listening on {process.url}" in process.output()
        assert f"{process.url}/v1/tasks" in process.output()
        assert str(tmp_path / "data") in process.output()
        with urllib.request.urlopen(sent_by_curl(process.output())) as answer:
            assert answer.status == 202
            assert json.load(answer)["state"] == "ready"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_in_good_order_on_a_signal(tmp_path, number):
    process = ServerProcess(tmp_path / "data").start()
    assert process.stop(number) == 0
    assert "Traceback" not in process.output()


def test_stops_on_a_signal_while_it_replays(tmp_path):
    log = LmdbLog(tmp_path / "data")
    log.append(batch(10_000), 0, log.claim())
    log.close()
    process = ServerProcess(tmp_path / "data").start(wait=False)
    process.wait_printed("replaying events: 10000")
    assert process.stop() == 0
    assert "Traceback" not in process.output()


def test_second_server_on_a_folder_is_refused(server):
    refused = fails_to_start(ServerProcess(server.data_dir))
    assert refused.returncode == 1
    assert f"process {server.pid}" in refused.output
    assert "--data-dir" in refused.output


def test_port_in_use_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = fails_to_start(ServerProcess(tmp_path / "data", args=("--port", port)))
    assert refused.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in refused.output
    assert "--port 0" in refused.output


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"scheduler": {"maxInflght": 3}}, "scheduler.maxInflght: no such setting"),
        ({"server": {"host": "0.0.0.0"}}, "server.tokens"),
    ],
)
def test_bad_configuration_is_refused_by_the_name_of_the_key(tmp_path, config, named):
    refused = fails_to_start(ServerProcess(tmp_path / "data", config=config))
    assert refused.returncode == 1
    assert named in refused.output


def test_a_variable_that_is_wrong_is_named_and_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TASK_QUEUE_MAX_CONCURRENT", "-1")
    done = CliRunner().invoke(main, ["serve", "--port", "0", "--data-dir", str(tmp_path / "data")])
    assert done.exit_code == 1
    assert "error: TASK_QUEUE_MAX_CONCURRENT: must be a whole number" in done.stderr


def test_preset_that_there_is_not_is_refused_with_those_there_are(tmp_path):
    refused = fails_to_start(ServerProcess(tmp_path / "data", args=("--preset", "nobodys")))
    assert refused.returncode == 2
    assert "browsermanager" in refused.output


def test_presets_lie_under_the_file(tmp_path):
    config = {"scheduler": {"maxPerKey": 9}}
    args = ("--preset", "browsermanager", "--preset", "browseros")
    with ServerProcess(tmp_path / "data", config=config, args=args) as process:
        settings = JsonClient(process.url).config()
        said = process.output()
    what = "browsermanager and browseros both set scheduler.resultTTLSec: browseros wins"
    assert [line for line in said.splitlines() if "both set" in line and what in line]
    assert said.count("both set") == 1
    assert settings["presets"] == ["browsermanager", "browseros"]
    assert settings["scheduler"]["maxPerKey"] == 9
    assert settings["scheduler"]["maxQueueSize"] == 500
    assert settings["types"]["browser_start"]["maxConcurrent"] == 5


def test_folder_that_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    refused = fails_to_start(ServerProcess(tmp_path / "file" / "data"))
    assert refused.returncode == 1
    assert str(tmp_path / "file" / "data") in refused.output


def test_storage_that_lost_what_was_acknowledged_ends_the_server(tmp_path):
    process = ServerProcess(tmp_path / "data").start()
    client = JsonClient(process.url)
    client.wait(client.submit("echo", "a")["taskId"], 10)
    with lmdb.open(str(tmp_path / "data"), max_dbs=8, map_size=16 << 30) as env:
        events = env.open_db(b"events", create=False)
        with env.begin(write=True) as txn:
            cursor = txn.cursor(events)
            cursor.last()
            cursor.delete()
    with pytest.raises(RotaError):
        client.submit("echo", "a")
    assert process.wait() == 3
    assert "error: the storage failed: the log ends at" in process.output()


def test_a_reload_puts_the_file_in_force_over_presets_and_options_and_nothing_else(tmp_path):
    args = ("--preset", "automechanica", "--paused")
    with ServerProcess(tmp_path / "data", config={}, args=args) as process:
        client = JsonClient(process.url)
        config = process.config_path

        def reloaded(said: dict) -> tuple:
            config.write_text(json.dumps(said))
            asked = urllib.request.Request(f"{process.url}/v1/config/reload", b"", method="POST")
            with urllib.request.urlopen(asked) as answer:
                shown = json.load(answer)
            own = shown["scheduler"]
            assert (own["strategy"], own["startPaused"]) == ("priority-fifo", True), "by options"
            names = shown["presets"]
            return names, own["maxInflight"], own["workerCount"], shown["projects"]["maxConcurrent"]

        base = ["automechanica"]
        assert reloaded({}) == (base, 1000, 64, 0)
        both = [*base, "projects"]
        own = {"maxInflight": 7, "startPaused": False}
        assert reloaded({"preset": "projects", "scheduler": own}) == (both, 7, 5, 5)
        assert reloaded({"preset": "projects"}) == (both, 1000, 5, 5)
        assert reloaded({}) == (base, 1000, 64, 0)
        assert client.change_limits(max_inflight=50)["scheduler"]["maxInflight"] == 50
        assert reloaded({}) == (base, 1000, 64, 0)
        assert reloaded({"scheduler": {"maxInflight": 50}}) == (base, 50, 64, 0)
        assert reloaded({"scheduler": {"maxInflight": 0}}) == (base, 50, 64, 0), "as it was"
        in_one = {"namespaces": {"default": {"scheduler": {"maxInflight": 0}}}}
        assert reloaded({"scheduler.maxInflight": 8, **in_one}) == (base, 50, 64, 0)
        assert reloaded({}) == (base, 1000, 64, 0)


def test_log_lines_cannot_be_forged(tmp_path):
    path = tmp_path / "a\nb"
    path.mkdir()
    process = ServerProcess(path / "data", config={}, args=("--json-logs",))
    with process:
        process.config_path.write_text('{"scheduler": "x\\ny"}')
        subprocess.run(["kill", "-HUP", str(process.pid)], check=True)
        process.wait_printed("was not reloaded")
    logged = [json.loads(line) for line in process.output().splitlines()]
    assert [line["level"] for line in logged if "not reloaded" in line["message"]] == ["error"]
    assert "a\nb/data" in logged[0]["message"]
