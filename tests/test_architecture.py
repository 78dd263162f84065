"""The shape of the code, kept by a test: imports point one way, every dependency has one home,
every file says what it is for, and none grows past reading.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rota

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rota"
FILES = sorted(PACKAGE.rglob("*.py"))
LINES_MAX = 400

MAY_IMPORT = {
    "domain": {"domain", "errors"},
    "eventlog": {"eventlog", "domain", "errors", "clock"},
    "projections": {"projections", "domain", "errors", "clock"},
    "executors": {"executors", "domain", "errors", "clock", "config", "__init__"},
    "actors": {
        "actors",
        "domain",
        "eventlog",
        "projections",
        "executors",
        "errors",
        "clock",
        "config",
        "ids",
        "__init__",
    },
}
"""Which rooms a room may import from; rooms that are not named here are the outermost."""

OUTERMOST = {"http", "cli", "__main__"}

HOMES = {
    "lmdb": {"eventlog/lmdb_environment.py", "eventlog/lmdb_store.py"},
    "time": {"clock.py"},
}
"""Libraries that one module alone, or two that are one thing, may import."""

PYKKA_HOME = {"actors/runtime.py"}


def name_of(path: Path) -> str:
    """Name a file by its path inside the package."""
    return path.relative_to(PACKAGE).as_posix()


def room_of(path: Path) -> str:
    """Name the room a file is in; a file at the top is a room of its own."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


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


def rooms_imported(path: Path) -> set[str]:
    """Give the rooms of rota that a file imports from."""
    rooms = {
        entry.removesuffix(".py")
        for entry in (p.name for p in PACKAGE.iterdir())
        if not entry.startswith("__")
    } | {"__main__"}
    found = set()
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "rota":
            found.add(parts[1] if len(parts) > 1 and parts[1] in rooms else "__init__")
    return found


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_from_further_in(room: str) -> None:
    for path in FILES:
        if room_of(path) == room:
            outside = rooms_imported(path) - MAY_IMPORT[room]
            assert not outside, f"{name_of(path)} imports from {outside}"


def test_nothing_imports_the_edges_but_the_edges() -> None:
    for path in FILES:
        if room_of(path) not in OUTERMOST:
            outside = rooms_imported(path) & OUTERMOST
            assert not outside, f"{name_of(path)} imports from {outside}"


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
