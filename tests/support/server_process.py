"""A real `python -m rota serve` in a process of its own, for tests that need the whole thing.

`ServerProcess(data_dir)` starts it on a free port, waits until it printed its address and answers
`GET /health/ready`, and stops it at the end of the `with` block. `stop` asks (SIGTERM by default)
and gives the exit code; `kill` does not ask (SIGKILL). The same object can be started again on the
same folder. Everything the process prints, on both streams, is kept for `output()`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

REPOSITORY = Path(__file__).resolve().parents[2]
ADDRESS = re.compile(r"listening on (?:https?://)?(\[[0-9a-f:]+\]|[^\s:/]+):(\d+)")
START_S = 30.0
STOP_S = 30.0


class ServerFailed(AssertionError):
    """The server ended, or did not become ready; carries what it printed."""

    def __init__(self, what: str, returncode: int | None, output: str) -> None:
        super().__init__(f"{what} (exit code {returncode})\n{output}")
        self.returncode = returncode
        self.output = output


class ServerProcess:
    """One server process on one data folder; a context manager."""

    def __init__(
        self,
        data_dir: str | Path,
        config: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        args: tuple[str, ...] | list[str] = (),
    ) -> None:
        """Take the folder, the configuration as a dict, more environment and more arguments.

        `--port 0` is given unless `args` or the configuration name a port.
        """
        self.data_dir = Path(data_dir)
        self.config = config
        self.config_path: Path | None = None
        self.env = dict(env or {})
        self.args = tuple(args)
        self.host = ""
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._lines: list[str] = []
        self._listening = threading.Event()
        self._ended = False

    @property
    def url(self) -> str:
        """The address, such as http://127.0.0.1:40123."""
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, None while it runs."""
        return None if self._process is None else self._process.poll()

    def output(self) -> str:
        """Give all that the process printed since its last start."""
        return "".join(self._lines)

    def command(self) -> list[str]:
        """Give the command line."""
        line = [sys.executable, "-m", "rota", "serve", "--data-dir", str(self.data_dir)]
        if self.config_path is not None:
            line += ["--config", str(self.config_path)]
        if "--port" not in self.args and not (self.config or {}).get("server", {}).get("port"):
            line += ["--port", "0"]
        return [*line, *self.args]

    def start(self, *, timeout: float = START_S, wait: bool = True) -> Self:
        """Start it and wait until it is ready; with `wait=False` return at once."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        self._release()
        if self.config is not None:
            self.config_path = self.data_dir.parent / f"{self.data_dir.name}.config.json"
            self.config_path.write_text(json.dumps(self.config))
        self._lines = []
        self._listening = threading.Event()
        self._ended = False
        self._process = subprocess.Popen(
            self.command(),
            cwd=self.data_dir.parent if self.data_dir.parent.is_dir() else None,
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("ROTA_")},
                "PYTHONPATH": str(REPOSITORY),
                "PYTHONUNBUFFERED": "1",
                **self.env,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = threading.Thread(target=self._read, name="server-output", daemon=True)
        self._reader.start()
        if wait:
            self.wait_ready(timeout)
        return self

    def wait_ready(self, timeout: float = START_S) -> None:
        """Wait for the printed address, then for `GET /health/ready`. Raises ServerFailed."""
        end = time.monotonic() + timeout
        self._listening.wait(timeout)
        if self._ended or not self.port:
            what = "the server ended" if self._ended else f"it did not listen within {timeout} s"
            code = self.wait(5.0) if self._ended else None
            self.kill()
            raise ServerFailed(what, code, self.output())
        while not self._is_ready():
            if self.returncode is not None or time.monotonic() > end:
                code = self.returncode
                self.kill()
                raise ServerFailed("the server did not become ready", code, self.output())
            time.sleep(0.01)

    def wait_printed(self, text: str, timeout: float = START_S) -> None:
        """Wait until it has printed `text`, on either stream. Raises ServerFailed."""
        end = time.monotonic() + timeout
        while text not in self.output():
            if self.returncode is not None or time.monotonic() > end:
                code = self.kill()
                if text in self.output():
                    return
                raise ServerFailed(f"it did not print {text!r}", code, self.output())
            time.sleep(0.005)

    def wait(self, timeout: float = STOP_S) -> int:
        """Wait until the process ends by itself; give its exit code."""
        assert self._process is not None, "the server was not started"
        code = self._process.wait(timeout)
        self._release()
        return code

    def stop(self, signal: int = signal.SIGTERM, timeout: float = STOP_S) -> int:
        """Send the signal, wait for the end, give the exit code; kill it if that takes too long."""
        assert self._process is not None, "the server was not started"
        if self._process.poll() is None:
            self._process.send_signal(signal)
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"still running {timeout} s later", None, self.output()) from None

    def kill(self) -> int:
        """Kill it with SIGKILL; give the exit code (-9). Nothing happens to one that has ended."""
        assert self._process is not None, "the server was not started"
        if self._process.poll() is None:
            self._process.kill()
        return self.wait()

    def __enter__(self) -> Self:
        if self._process is None or self._process.poll() is not None:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is None:
            return
        if kind is None:
            self.stop()
        else:
            self.kill()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = raw.decode(errors="replace")
            self._lines.append(line)
            found = None if self._listening.is_set() else ADDRESS.search(line)
            if found:
                self.host, self.port = found[1], int(found[2])
                self._listening.set()
        if not self._listening.is_set():
            self._ended = True
        self._listening.set()

    def _release(self) -> None:
        """Join the reader and close the pipe of a process that has ended."""
        if self._reader is not None:
            self._reader.join()
            self._reader = None
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False
