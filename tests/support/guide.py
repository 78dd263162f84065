"""Reads a page of the documentation as a script, runs it as a reader would, and compares.

A page is followed from top to bottom in one shell and one folder. A block after `<!-- file: NAME -->`
is written to that file. In a console block each line that begins with `$ ` is typed (a command may
go on over lines that end in a backslash); what follows is what the reader is promised to see. Ids,
times, digests and numbers may differ, `...` stands for anything. `rota serve`, or `make run`, runs
in the background on a free port, and the reader goes on when it answers.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE_S_MAX = 120
PORTS = ("9867", "9100")
"""What the pages call a server's and a worker's; a test takes others."""
_BLOCK = re.compile(r"(?:<!-- file: (\S+) -->\n+)?```(\w*)\n(.*?)```", re.DOTALL)
_MARK = "=-=-= step"
_READY = "for n in $(seq 50); do rota stats >ready.log 2>&1 && break; done"


class Step(NamedTuple):
    """Something typed, and what is promised to follow."""

    command: str
    promised: str


class File(NamedTuple):
    """Something to be saved."""

    name: str
    text: str


def read_page(path: Path) -> list[Step | File]:
    """Give what a page says to do, in order."""
    found: list[Step | File] = []
    for name, kind, text in _BLOCK.findall(path.read_text()):
        if name:
            found.append(File(name, text))
        elif kind == "console":
            found += _steps(text)
    return found


def _steps(text: str) -> list[Step]:
    steps: list[Step] = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        at = next(i for i, line in enumerate(lines) if not line.endswith("\\"))
        steps.append(Step("\n".join(lines[: at + 1]), "\n".join(lines[at + 1 :])))
    return steps


def follow(page: list[Step | File], folder: Path) -> list[tuple[Step, str]]:
    """Do what a page says in a folder; give each step and what was seen."""
    ports = {port: str(_free_port()) for port in PORTS}
    port = ports[PORTS[0]]
    script = ["beside=''"]
    steps = [item for item in page if isinstance(item, Step)]
    for number, item in enumerate(page):
        if isinstance(item, File):
            save = folder / f".saved-{number}"
            save.write_text(_moved(item.text, ports))
            script.append(f"cp {shlex.quote(str(save))} {shlex.quote(item.name)}")
            continue
        command = _moved(item.command, ports)
        is_server = re.match(r"rota serve\b|make run\b", command) is not None
        if is_server:
            command = re.sub(r"^make run", "rota serve", command.partition("#")[0].rstrip())
            command += f" --port {port} > serve.log 2>&1 &"
        script += [f"echo '{_MARK}'", command]
        if command.endswith("&"):
            script.append('beside="$beside $!"')
        if is_server:
            script.append(_READY)
    script += [f"echo '{_MARK}'", "kill $beside", "wait"]
    seen = _run("\n".join(script), folder, port).split(f"{_MARK}\n")[1:-1]
    return list(zip(steps, seen, strict=True))


def _moved(text: str, ports: dict[str, str]) -> str:
    for said, real in ports.items():
        text = text.replace(said, real)
    return text


def _run(script: str, folder: Path, port: str) -> str:
    programs = folder / ".bin"
    programs.mkdir()
    given = {"rota": "-m rota", "python": ""}
    if shutil.which("curl") is None:
        given["curl"] = shlex.quote(str(Path(__file__).with_name("curl.py")))
    for name, words in given.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        program.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{folder}",
        "PYTHONUNBUFFERED": "1",
        "ROTA_URL": f"http://127.0.0.1:{port}",
        "COLUMNS": "120",
    }
    seen = folder / ".seen"
    with seen.open("w") as out:
        shell = subprocess.Popen(
            ["sh", "-c", script],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(PAGE_S_MAX)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # whatever the page has left running
            shell.wait()
    return seen.read_text()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_kept(promised: str, seen: str) -> bool:
    """Whether what was seen is what was promised, but for ids, times, digests and numbers."""
    pattern = re.escape(_masked(promised)).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, _masked(seen), re.DOTALL) is not None


def _masked(text: str) -> str:
    text = re.sub(r"\b(?:(?:tsk|bat|wfl)_|run-)\w+", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"\b[0-9a-f]{16,}\b", "DIGEST", text)
    text = re.sub(r"\d+(\.\d+)?", "#", text)
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())
