"""The shape of the code, kept by a test: imports point one way (by the contracts in
pyproject.toml), every dependency has one home, every file says what it is for, and none grows past
reading.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import rota

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rota"
FILES = sorted(PACKAGE.rglob("*.py"))
LINES_MAX = 800

HOMES = {
    "lmdb": {"eventlog/lmdb_environment.py", "eventlog/lmdb_store.py"},
    "cronsim": {"calendars.py"},
    "zoneinfo": {"calendars.py"},
    "time": {"clock.py", "executors/wards/ward.py"},
    "psutil": {"executors/wards/leftovers.py"},
}
"""Libraries that one module alone, or two that are one thing, may import."""

PYKKA_HOME = {"actors/runtime.py"}


def name_of(path: Path) -> str:
    """Name a file by its path inside the package."""
    return path.relative_to(PACKAGE).as_posix()


def imports_of(path: Path) -> set[str]:
    """Give every module that a file imports, wherever in the file, with the names taken."""
    found: set[str] = set()
    package = ("rota", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package[: len(package) - node.level + 1]
                base = ".".join([*up, *([base] if base else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def test_imports_keep_to_the_contracts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logging.config.dictConfig", lambda _: None)  # it would silence our loggers
    kept = lint_imports(str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True) == 0
    assert kept, capsys.readouterr().out


@pytest.mark.parametrize("library", HOMES)
def test_a_library_has_one_home(library: str) -> None:
    users = {
        name_of(path)
        for path in FILES
        if any(name.split(".")[0] == library for name in imports_of(path))
    }
    assert users == HOMES[library]


def test_the_insides_of_pykka_have_one_home() -> None:
    for path in FILES:
        if name_of(path) in PYKKA_HOME:
            continue
        inside = {
            name
            for name in imports_of(path)
            if re.search(r"^pykka\.(.*\.)?_|^pykka\.messages", name)
        }
        text = path.read_text()
        inside |= set(re.findall(r"\b(?:_ActorStop|_actor_refs\w*|pykka\._\w+)", text))
        assert not inside, f"{name_of(path)} uses {inside}"


def test_nothing_is_unpickled() -> None:
    for path in FILES:
        used = {name.split(".")[0] for name in imports_of(path)}
        assert not used & {"pickle", "marshal", "shelve"}, name_of(path)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    if path.name == "__init__.py" and not text.strip():
        return
    assert ast.get_docstring(ast.parse(text)), f"{name_of(path)} has no docstring"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_module_can_be_read_in_one_sitting(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= LINES_MAX, f"{name_of(path)} has {lines} lines; look for its second noun"


def test_no_module_hides_one_of_the_standard_library() -> None:
    """A top-level `http` would break aiohttp; inside the package it does not."""
    top = {path.name.removesuffix(".py") for path in ROOT.iterdir() if path.name != "tests"}
    assert not top & {"http", "json", "time", "logging", "types", "asyncio"}


def test_the_tests_are_no_package() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_rota_starts_as_a_module_and_says_its_version() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "rota", "--version"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert rota.__version__ in done.stdout
