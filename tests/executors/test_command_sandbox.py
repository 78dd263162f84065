"""Commands in a sandbox: what they cannot reach, whoever the server is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.commands import python, ran

from rota.config import load_settings, parse_settings
from rota.errors import ConfigError
from rota.executors import sandbox as sandboxes
from rota.executors.port import Attempt
from rota.executors.runner import build_executors
from rota.executors.sandbox import WANTED, sandbox, sandbox_problem, weakness

if TYPE_CHECKING:
    from rota.domain.commands import Outcome


def test_a_sandbox_has_no_network_and_only_its_folder_to_write(tmp_path: Path) -> None:
    """Where it cannot work, asking for it is refused with the reason."""
    problem = sandbox_problem()
    if problem:
        with pytest.raises(ConfigError) as refused:
            asyncio.run(ran(tmp_path, "true", sandbox="bubblewrap"))
        assert problem in refused.value.message
        return
    (tmp_path / "log").write_text("secret")
    code = f"""
import json, os, socket
found = {{}}
open("mine", "w").close()
for name, path in (("etc", "/etc/rota-was-here"), ("data", "{tmp_path}/x"), ("tmp", "/tmp/x")):
    try:
        open(path, "w").close()
        found[name] = True
    except OSError as error:
        found[name] = error.strerror
found["log"] = os.path.exists("{tmp_path}/log")
found["links"] = [n for _, n in socket.if_nameindex()]
found["processes"] = len([n for n in os.listdir("/proc") if n.isdigit()])
print(json.dumps(found))
"""
    outcome, _ = asyncio.run(ran(tmp_path, *python(code), sandbox="bubblewrap"))
    no = "Read-only file system"
    seen = {"etc": no, "data": no, "tmp": no, "log": False, "links": ["lo"], "processes": 2}
    assert outcome.result == seen, outcome


@pytest.mark.parametrize("how", ["cap", "remount", "umount", "shm", "dev"])
def test_a_sandbox_holds_whoever_the_server_is(tmp_path: Path, how: str) -> None:
    """Where it cannot work, what would be run says so all the same."""
    argv = sandbox(str(tmp_path / "cwd"), [tmp_path])
    assert argv[argv.index("--cap-drop") + 1] == "ALL"
    assert "--unshare-all" in argv
    if sandbox_problem():
        return
    (tmp_path / "log").write_text("secret")
    code = f"""
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
how, data = {how!r}, {str(tmp_path)!r}.encode()
if how == "cap":
    with open("/proc/self/status") as file:
        found = {{line.split()[1] for line in file if line.startswith("Cap")}} == {{"0" * 16}}
elif how == "remount":  # MS_REMOUNT | MS_BIND
    found = libc.mount(b"none", b"/", b"none", 32 | 4096, None) != 0
    found = found and libc.mount(b"none", data, b"none", 32, None) != 0
elif how == "umount":  # MNT_DETACH
    found = libc.umount2(data, 2) != 0 and not os.path.exists(os.path.join(data, b"log"))
elif how == "shm":
    size = os.statvfs("/dev/shm")
    found = size.f_blocks * size.f_frsize <= 50 << 20
    open("/dev/shm/mine", "w").close()
else:
    found = not os.access("/dev", os.W_OK)
print(json.dumps([found]))
"""
    outcome, _ = asyncio.run(ran(tmp_path, *python(code), sandbox="bubblewrap", memoryMbMax=50))
    assert outcome.result == [True], outcome


def test_the_folders_of_all_namespaces_are_hidden_wherever_the_command_works() -> None:
    folders = [Path("/data"), Path("/other/b"), Path("/data/namespaces/a")]

    def order(cwd: str) -> list[str]:
        argv = sandbox(cwd, folders)
        begin = argv.index("--proc") + 2
        return [each for each in argv[begin : argv.index("--chdir")] if each[0] == "/"]

    hidden = ["/data", "/other/b", "/data/namespaces/a"]
    inside = "/data/namespaces/a/commands/1"
    assert order(inside) == [*hidden, inside, inside, *hidden]
    assert order("/") == ["/", "/", *hidden, *hidden]
    assert order("/data") == ["/data", "/data", *hidden, *hidden], "hidden all the same"
    argv = sandbox(inside, folders)
    assert argv[0] == "bwrap"
    assert argv[argv.index("--ro-bind") :][:3] == ["--ro-bind", "/", "/"]
    assert argv[-1] == "--"


def test_a_sandbox_reads_neither_the_configuration_nor_the_key(tmp_path: Path) -> None:
    """Wherever they lie, and also where the configuration names a link to them."""
    (tmp_path / "kept").mkdir()
    key, link = tmp_path / "kept" / "key-2.pem", tmp_path / "key.pem"
    key.write_text("a key")
    link.symlink_to(key)
    cwd = tmp_path / "work"
    cwd.mkdir()
    config = cwd / "rota.toml"
    code = f"""
import json
found = []
for path in ({str(config)!r}, {str(key)!r}, {str(link)!r}):
    try:
        with open(path) as file:
            found.append(file.read())
    except OSError:
        found.append("")
print(json.dumps(found))
"""
    argv = [*python(code)]
    config.write_text(f"""
        [server]
        dataDir = "{tmp_path}/data"
        tls = {{ cert = "{key}", key = "{link}" }}
        [executors.cmd]
        kind = "command"
        sandbox = "bubblewrap"
        argv = {json.dumps(argv)}
        cwd = "{cwd}"
        """)
    settings = load_settings(config)
    assert settings.of_namespace("default").secret_files() == (config, link)
    if sandbox_problem():
        return
    (tmp_path / "data").mkdir()

    async def run() -> Outcome:
        executor = build_executors(settings)["cmd"]
        try:
            return await executor.run(Attempt("t", "a", 1, 7, "cmd", "cmd", {}), lambda _: None)
        finally:
            await executor.close()

    assert asyncio.run(run()).result == ["", "", ""]


def test_each_namespace_knows_the_folders_of_all() -> None:
    """Also those that were given elsewhere."""
    settings = parse_settings(
        {"server": {"dataDir": "/d"}, "namespaces": {"a": {}, "b": {"dataDir": "/x/b"}}}
    )
    for name in ("default", "a", "b"):
        assert settings.of_namespace(name).data_dirs() == ("/d", "/d/namespaces/a", "/x/b")


def test_a_sandbox_that_leaves_something_is_seen_by_what_it_has() -> None:
    held = "".join(f"{name}:\t{value}\n" for name, value in WANTED.items())
    read_only = "22 1 8:1 / / ro,nosuid - ext4 /dev/x rw\n"
    assert weakness(held + read_only) == ""
    assert weakness(held + read_only.replace(" ro,", " rw,")) == "inside of it / can be written"
    assert weakness(held) == "inside of it / can be written"
    kept = held.replace("CapEff:\t0000000000000000", "CapEff:\t000001ffffffffff")
    assert "CapEff is 000001ffffffffff" in weakness(kept + read_only)
    assert "CapPrm is None" in weakness("")


def test_a_sandbox_without_its_program_is_refused_by_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxes, "BWRAP", "no-such-bwrap")
    with pytest.raises(ConfigError, match="does not work here: there is no program 'bwrap'"):
        asyncio.run(ran(tmp_path, "true", sandbox="bubblewrap"))


def test_a_sandbox_that_fails_is_refused_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr(sandboxes, "BWRAP", str(fake))
    with pytest.raises(ConfigError, match="No permissions to create a new namespace"):
        asyncio.run(ran(tmp_path, "true", sandbox="bubblewrap"))
