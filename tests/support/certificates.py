"""Certificates for tests of TLS, each signed by itself; made by `openssl`, which every CI has."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")


def certify(folder: Path, name: str = "127.0.0.1") -> tuple[Path, Path]:
    """Put a new certificate and its key in the folder, over those that are there."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    san = f"subjectAltName=IP:127.0.0.1,DNS:{'localhost' if name == '127.0.0.1' else name}"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", san]
    command += ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key
