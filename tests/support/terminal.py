"""Commands typed at a terminal of so many columns: a real process on a real pty."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from typing import Any

from support.server_process import REPOSITORY


def typed_at(columns: int, *words: Any, url: str, timeout_s: float = 60) -> list[str]:
    """Give the lines that `rota WORDS` shows on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    env |= {"PYTHONPATH": str(REPOSITORY), "TERM": "dumb", "ROTA_URL": url, "ROTA_TOKEN": ""}
    command = [sys.executable, "-m", "rota", *map(str, words)]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=env
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the other side has left
        pass
    finally:
        os.close(ours)
        assert process.wait(timeout_s) == 0, shown
    text = shown.decode().replace("\x1b[1m", "").replace("\x1b[0m", "")
    return text.replace("\r\n", "\n").splitlines()
