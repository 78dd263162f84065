"""Commands typed at a terminal of so many columns: a real process on a real pty."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from time import monotonic
from typing import Any, Self

from support.server_process import REPOSITORY

PATIENCE_S = 120
AGAIN_S = 5
_STYLE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def typed_at(columns: int, *words: Any, url: str, timeout_s: float = 60) -> list[str]:
    """Give the lines that `rota WORDS` shows on a terminal."""
    process, ours = _started(columns, words, url)
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


def _started(
    columns: int, words: tuple[Any, ...], url: str, term: str = "dumb", *, with_err: bool = False
) -> tuple[subprocess.Popen[bytes], int]:
    """Start `rota WORDS` on a terminal of its own; give the process and our end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    env |= {"PYTHONPATH": str(REPOSITORY), "TERM": term, "ROTA_URL": url, "ROTA_TOKEN": ""}
    command = [sys.executable, "-m", "rota", *map(str, words)]
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs if with_err else subprocess.DEVNULL,
        env=env,
    )
    os.close(theirs)
    return process, ours


class Terminal:
    """A command that goes on: what it draws can be waited for, and keys can be pressed."""

    def __init__(self, columns: int, *words: Any, url: str, with_err: bool = False) -> None:
        """Draw what the command says to people only `with_err`."""
        self._process, self._ours = _started(columns, words, url, "xterm", with_err=with_err)
        self._drawn = b""
        self._is_interrupted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(60)
        os.close(self._ours)

    def until(self, text: str) -> None:
        """Wait until something is drawn that was not drawn before the last wait."""
        end = monotonic() + PATIENCE_S
        while text.encode() not in _STYLE.sub(b"", self._drawn):
            assert monotonic() < end, f"{text!r} was never drawn: {self._drawn[-2000:]!r}"
            if select.select([self._ours], [], [], 1)[0]:
                self._drawn += os.read(self._ours, 65536)
        self._drawn = b""

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def interrupt(self) -> None:
        """Do what Ctrl-C does; it is done again by `ended` if it was lost, as a person would."""
        self._is_interrupted = True
        self._process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        """Give the exit code, once it has ended."""
        end, again = monotonic() + PATIENCE_S, monotonic() + AGAIN_S
        while self._process.poll() is None:
            assert monotonic() < end, "it does not end"
            if self._is_interrupted and monotonic() > again:
                self._process.send_signal(signal.SIGINT)
                again = monotonic() + AGAIN_S
            if select.select([self._ours], [], [], 0.2)[0]:
                with suppress(OSError):  # the other side has left
                    os.read(self._ours, 65536)
        return self._process.returncode
