"""What `make` does before anything is installed: it looks at the Python there is."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def made(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run make on copies of the files that it goes by."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    words = ("make", "-C", str(folder), *words)
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_a_python_that_is_too_old_is_refused_with_a_sentence(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    code = "import sys; sys.version_info = (3, 9, 2); exec(sys.argv[1])"
    old.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{code}' \"$2\"\n")
    old.chmod(0o755)
    for target in ("run", "test"):
        tried = made(tmp_path, target, f"PYTHON={old}")
        assert tried.returncode != 0
        assert f"rota needs Python 3.11 or newer, and {old} is 3.9: make PYTHON=" in tried.stderr
        assert "Traceback" not in tried.stderr
    assert not (tmp_path / ".venv").exists()


def test_without_any_python_the_same_is_said(tmp_path: Path) -> None:
    tried = made(tmp_path, "run", "PYTHON=")
    assert (tried.returncode != 0, "and finds none" in tried.stdout) == (True, True)


def test_running_installs_no_tools_of_development(tmp_path: Path) -> None:
    said = made(tmp_path, "-n", "run", f"PYTHON={sys.executable}").stdout
    assert "--editable ." in said
    assert "[dev]" not in said
    assert "--editable '.[dev]'" in made(tmp_path, "-n", "test", f"PYTHON={sys.executable}").stdout
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"  # the Python that the Makefile asks for
