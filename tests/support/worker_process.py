"""A real `python -m rota worker` in a process of its own, which may be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

REPOSITORY = Path(__file__).resolve().parents[2]
STOP_S = 30.0


class WorkerProcess:
    """One worker of a module in a folder; what it prints is kept in a file there."""

    def __init__(self, folder: Path, target: str, url: str, *args: str, name: str = "w") -> None:
        self.folder, self.target, self.url, self.args = folder, target, url, args
        self.printed = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        env = {k: v for k, v in os.environ.items() if not k.startswith("ROTA_")}
        path = f"{REPOSITORY}{os.pathsep}{env.get('PYTHONPATH', '')}"
        with self.printed.open("a") as out:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "rota",
                    "worker",
                    self.target,
                    "--url",
                    self.url,
                    *self.args,
                ],
                cwd=self.folder,
                env={**env, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        return self

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Send a signal, and give the exit code."""
        assert self._process is not None
        self._process.send_signal(signum)
        return self._process.wait(STOP_S)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def output(self) -> str:
        return self.printed.read_text()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
