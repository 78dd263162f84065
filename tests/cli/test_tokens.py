"""`rota token create | list | revoke`: on a server that runs, and in the folder of one that does not."""

from __future__ import annotations

import json

import pytest
from support.certificates import certify, needs_openssl
from support.server_process import ServerFailed, ServerProcess

from rota.client.sync_client import JsonClient
from rota.errors import RequestError, RotaError

OPS = "ops-token-" + "o" * 20


@pytest.fixture
def process(tmp_path):
    config = {"server": {"tokens": {"ops": OPS}}}
    with ServerProcess(tmp_path / "data", config) as made:
        yield made


@pytest.fixture
def ask(process, typed):
    """Type a command to the server, as its operator or with another token."""

    def run(*words, token=OPS):
        return typed(*words, env={"ROTA_URL": process.url, "ROTA_TOKEN": token})

    return run


def create(ask, name, role, *words):
    result = ask("token", "create", "--name", name, "--role", role, *words)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


def test_a_token_is_printed_once_listed_used_and_revoked(process, ask):
    made = ask("token", "create", "--name", "crawler", "--role", "submit", "--agent", "c1",
               "--agent", "c2", "--expires", "90d")  # fmt: skip
    token = made.stdout.strip()
    assert token.startswith("rota_")
    assert "\n" not in token
    assert "crawler (submit for c1, c2, until 20" in made.stderr
    assert "it is not shown again" in made.stderr
    listed = ask("token", "list").stdout
    assert "crawler" in listed
    assert "c1, c2" in listed
    assert token not in listed
    task = ask("submit", "echo", "--agent", "c1", token=token)
    assert task.exit_code == 0, task.stderr
    refused = ask("submit", "echo", "--agent", "other", token=token)
    assert refused.exit_code == 1
    assert "this token is not for this agent" in refused.stderr
    assert "try: give another --token" in refused.stderr
    assert ask("token", "revoke", "crawler").stdout == "token crawler revoked\n"
    assert ask("list", token=token).exit_code == 1
    assert "crawler" not in ask("token", "list").stdout


def test_programs_get_json(process, ask):
    words = ("--name", "a", "--role", "work", "--agent", "*", "--json")
    made = json.loads(ask("token", "create", *words).stdout)
    assert (made["name"], made["agents"]) == ("a", ["*"])
    (row,) = json.loads(ask("token", "list", "--json").stdout)["tokens"]
    assert (row["name"], row["role"], row["createdBy"]) == ("a", "work", "ops")
    assert json.loads(ask("token", "revoke", "a", "--json").stdout) == {
        "name": "a",
        "revoked": True,
    }
    refused = ask("token", "revoke", "a", "--json")
    assert json.loads(refused.stderr)["code"] == "not_found"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--name", "x", "--role", "submit"), "names the agents it is for"),
        (("--name", "ops", "--role", "admin"), "give another --name"),
        (("--name", "a b", "--role", "admin"), "field 'name'"),
    ],
)
def test_what_cannot_be_made_says_what_to_do(ask, words, said):
    result = ask("token", "create", *words)
    assert result.exit_code == 1
    assert said in result.stderr


def test_wrong_usage_is_exit_code_2(ask):
    assert ask("token", "create", "--name", "x", "--role", "root").exit_code == 2
    assert ask("token", "create", "--role", "admin").exit_code == 2
    bad = ask("token", "create", "--name", "x", "--role", "admin", "--expires", "soon")
    assert bad.exit_code == 2


def test_who_is_no_administrator_makes_none(ask):
    token = create(ask, "eyes", "audit")
    assert "eyes" in ask("token", "list", token=token).stdout
    refused = ask("token", "create", "--name", "x", "--role", "admin", token=token)
    assert refused.exit_code == 1
    assert "role 'audit' may not do this" in refused.stderr


# -- in a folder ---------------------------------------------------------------------------------


def test_the_folder_of_a_server_that_runs_is_left_alone(process, ask):
    words = ("--name", "x", "--role", "admin", "--data-dir", process.data_dir)
    refused = ask("token", "create", *words)
    assert refused.exit_code == 1
    assert "another rota server" in refused.stderr
    assert "leave out --data-dir" in refused.stderr
    create(ask, "seen", "audit")
    assert "seen" in ask("token", "list", "--data-dir", process.data_dir).stdout


def test_a_fresh_folder_gets_its_first_token_and_may_then_listen_everywhere(typed, tmp_path):
    folder = tmp_path / "data"
    server = ServerProcess(folder, args=("--host", "0.0.0.0"))
    with pytest.raises(ServerFailed) as caught:
        server.start()
    assert "would let anybody in" in caught.value.output
    assert "rota token create --data-dir" in caught.value.output
    assert not folder.exists()
    made = typed("token", "create", "--name", "ops", "--role", "admin", "--data-dir", folder)
    assert made.exit_code == 0, made.stderr
    with server:
        assert "Bearer $ROTA_TOKEN" in server.output()
        url = f"http://127.0.0.1:{server.port}"
        with pytest.raises(RequestError, match="Bearer"):
            JsonClient(url, token="").tasks()
        client = JsonClient(url, token=made.stdout.strip())
        assert client.wait(client.submit("echo", "a")["taskId"], 10)["state"] == "succeeded"
        events = client.events()["events"]
        assert [e["by"] for e in events if e["kind"] == "token_created"] == ["local"]
    assert typed("verify", "--data-dir", folder).exit_code == 0
    revoked = typed("token", "revoke", "ops", "--data-dir", folder)
    assert revoked.stdout == "token ops revoked\n"
    seq = json.loads(typed("replay", "--data-dir", folder, "--json").stdout)["head"]
    with pytest.raises(ServerFailed):
        server.start()
    after = json.loads(typed("replay", "--data-dir", folder, "--json").stdout)["head"]
    assert after == seq  # it looked, and began nothing


def test_a_namespaces_folder_is_found_by_its_name(typed, tmp_path):
    folder = tmp_path / "data"
    words = ("--data-dir", folder, "--namespace", "team")
    token = typed("token", "create", "--name", "t", "--role", "admin", *words).stdout.strip()
    assert (folder / "namespaces" / "team" / "data.mdb").exists()
    with ServerProcess(folder, {"namespaces": {"team": {}}}) as server:
        assert JsonClient(server.url, token=token).namespaces()["namespaces"][0]["name"] == "team"
        with pytest.raises(RotaError) as caught:
            JsonClient(server.url, token=token, namespace="default").tasks()
        assert caught.value.code == "namespace_forbidden"


def test_there_is_nothing_to_revoke_or_list_where_there_is_no_log(typed, tmp_path):
    for words in (("revoke", "x"), ("list",)):
        result = typed("token", *words, "--data-dir", tmp_path / "none")
        assert result.exit_code == 1
        assert not (tmp_path / "none").exists()


def test_in_a_folder_the_same_is_refused(typed, tmp_path):
    words = ("token", "create", "--data-dir", tmp_path / "data", "--role", "submit", "--name")
    assert "names the agents" in typed(*words, "x").stderr
    assert "field 'name'" in typed(*words, "a b", "--agent", "a").stderr
    assert typed(*words, "x", "--agent", "a").exit_code == 0
    assert "already" in typed(*words, "x", "--agent", "a").stderr


# -- https ---------------------------------------------------------------------------------------


@needs_openssl
def test_commands_talk_to_a_server_over_https(typed, tmp_path):
    cert, key = certify(tmp_path)
    config = {"server": {"tls": {"cert": str(cert), "key": str(key)}}}
    server = ServerProcess(tmp_path / "data", config)
    server.start(wait=False)
    try:
        assert server._listening.wait(30)
        assert "https://127.0.0.1" in server.output()
        env = {"ROTA_URL": f"https://127.0.0.1:{server.port}", "ROTA_CA": str(cert)}
        done = typed("submit", "echo", "--agent", "a", "--wait", env=env)
        assert done.exit_code == 0, done.stderr
        unknown = typed("list", env={**env, "ROTA_CA": ""})
        assert unknown.exit_code == 1
        assert "certificate" in unknown.stderr
    finally:
        server.stop()
