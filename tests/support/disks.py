"""Disks that fill up."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def small_disk(point: Path, size: str) -> Iterator[Path]:
    """Mount a tmpfs of `size`, or skip the test where that is not allowed."""
    point.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("there is no mount here")
    words = [mount, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(point)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("these tests may not mount")
    try:
        yield point
    finally:
        subprocess.run([umount, "--lazy", str(point)], check=True)
