"""The files for running rota as a service name only what there is, and do what they say."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import click
import pytest
from support.http_server import Rota, serving

from rota.cli import main
from rota.config import WAIT_MS_MAX, ServerSettings
from rota.http.routes import ROUTES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BUILDERS = ("podman", "buildah", "docker")


def instructions() -> list[tuple[str, str]]:
    """Give the Containerfile's instructions, with lines that go on joined."""
    text = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def check_options(words: list[str]) -> None:
    """See that a command of rota has all options that it is given."""
    command = main.get_command(click.Context(main), words[0])
    assert command is not None
    known = {option for param in command.params for option in param.opts}
    assert {word for word in words if word.startswith("--")} <= known


def builder() -> str | None:
    """Name a program that can build an image from what is on this machine."""
    (base,) = [rest for name, rest in instructions() if name == "FROM"]
    for name in BUILDERS:
        looks = ([name, "info"], [name, "inspect", "--type", "image", base])
        if shutil.which(name) and all(
            subprocess.run(look, capture_output=True, timeout=60, check=False).returncode == 0
            for look in looks
        ):
            return name
    return None


def test_the_unit_starts_rota_with_options_that_there_are(tmp_path: Path) -> None:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "rota.service")
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    check_options(words)
    assert float(unit["Service"]["TimeoutStopSec"]) > ServerSettings().grace_s
    if shutil.which("systemd-analyze"):
        copy = tmp_path / "rota.service"
        copy.write_text((DEPLOY / "rota.service").read_text().replace(program, sys.executable))
        looked = subprocess.run(
            ["systemd-analyze", "verify", str(copy)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (looked.returncode, str(copy) in looked.stderr) == (0, False), looked.stderr


def test_the_image_has_all_that_the_package_is_made_of_and_starts_it() -> None:
    steps = instructions()
    copied = {word for name, rest in steps if name == "COPY" for word in rest.split()[:-1]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    wanted = {"pyproject.toml", project["project"]["readme"], *wheel}
    assert copied == wanted | set(project["project"]["license-files"])
    assert all((ROOT / name).exists() for name in copied)
    said = {name: rest for name, rest in steps if name in ("ENTRYPOINT", "CMD", "EXPOSE", "VOLUME")}
    assert set(json.loads(said["ENTRYPOINT"])) == set(project["project"]["scripts"])
    words = json.loads(said["CMD"])
    check_options(words)
    assert (int(said["EXPOSE"]), said["VOLUME"]) == (ServerSettings().port, words[4])


def test_the_image_is_built_where_something_can_build_it(tmp_path: Path) -> None:
    """Where nothing can, its first command is run here instead: the package says its version."""
    name = builder()
    words = [sys.executable, "-m", "rota", "--version"]
    if name is not None:
        built = subprocess.run(
            [name, "build", "--pull=false", "-q", "-f", "Containerfile", "-t", "rota-test", "."],
            cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        assert built.returncode == 0, built.stderr
        run = "podman" if name == "buildah" else name
        words = [run, "run", "--rm", "rota-test", "--version"]
    said = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert said.stdout.startswith("rota, version "), said.stderr


@pytest.fixture(scope="module")
def rota(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server that has ended one task."""
    with serving(tmp_path_factory.mktemp("deployed")) as server:
        server.ended(server.submit_native())
        yield server


def test_the_image_is_healthy_while_the_server_lives(rota: Rota) -> None:
    (check,) = [rest for name, rest in instructions() if name == "HEALTHCHECK"]
    _, *words = json.loads(check.removeprefix("CMD "))
    for port, code in ((rota.port, 0), (1, 1)):
        moved = [word.replace(str(ServerSettings().port), str(port)) for word in words]
        looked = subprocess.run(
            [sys.executable, *moved], capture_output=True, timeout=60, check=False
        )
        assert looked.returncode == code, looked.stderr


def test_the_board_shows_figures_that_there_are(rota: Rota) -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\brota_\w+", target["expr"])
    }
    figures = rota.get("/metrics").body.decode()
    there = set(re.findall(r"^(rota_\w+)", figures, re.MULTILINE))
    assert asked
    assert asked <= there, asked - there


def test_the_proxy_and_prometheus_know_paths_and_bounds_of_the_server() -> None:
    proxy, watch = (DEPLOY / "nginx.conf").read_text(), (DEPLOY / "prometheus.yml").read_text()
    port = str(ServerSettings().port)
    assert proxy.count(f":{port};") == watch.count(f':{port}"') == 1
    (wait_s,) = re.findall(r"proxy_read_timeout (\d+)s;", proxy)
    (body_mib,) = re.findall(r"client_max_body_size (\d+)m;", proxy)
    assert int(wait_s) > WAIT_MS_MAX / 1000
    assert int(body_mib) << 20 == ServerSettings().body_bytes_max
    paths = {route.path for route in ROUTES}
    assert re.findall(r"metrics_path: (\S+)", watch) == ["/metrics"]
    assert "/metrics" in paths
    assert all(path.startswith("/ws/") for path in paths if "/ws" in path)
