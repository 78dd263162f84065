"""Every acknowledged group is synced: the system calls themselves are counted.

A SIGKILL test passes even without any sync, so the syncs are counted where they cannot be faked:
by strace, or by a library put before libc. Where neither strace nor a compiler is at hand, the
flags that the open environment reports must be those that sync.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

from support.builders import batch

from rota.eventlog.lmdb_store import LmdbLog

if TYPE_CHECKING:
    from pathlib import Path

WORK = """
    import sys, threading
    from collections import deque
    from rota.eventlog.committer import Committed, Committer, Wake
    from rota.eventlog.lmdb_store import LmdbLog
    from support.builders import batch

    log = LmdbLog(sys.argv[1], map_bytes=64 << 20)
    reports, outbox, reported = [], deque(), threading.Semaphore(0)

    def report(what):
        assert isinstance(what, Committed), what
        reports.append(what)
        reported.release()

    committer = Committer.start(log, log.claim(), outbox, report)
    records = batch(150)
    for at in range(0, 150, 3):
        outbox.append(records[at : at + 3])
        committer.tell(Wake())
        assert reported.acquire(timeout=60)
    committer.stop()
    assert sum(r.records for r in reports) == 150
    log.close()
    print(len(reports))
"""

COUNTER = r"""
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdio.h>
    #include <stdlib.h>
    static long calls;
    static void tell(void) {
        FILE *out = fopen(getenv("SYNCS_TO"), "w");
        if (out) { fprintf(out, "%ld", calls); fclose(out); }
    }
    static int through(const char *name, int fd) {
        int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
        if (__sync_fetch_and_add(&calls, 1) == 0) atexit(tell);
        return real(fd);
    }
    int fdatasync(int fd) { return through("fdatasync", fd); }
    int fsync(int fd) { return through("fsync", fd); }
"""


def _run(command: list[str], env: dict[str, str]) -> int | None:
    """Run the work under a command; give its number of groups, or None if it cannot run."""
    done = subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=120
    )
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else None


def _work(folder: Path) -> list[str]:
    setup = f"import sys; sys.path[:0] = {sys.path!r}\n"
    return [sys.executable, "-c", setup + textwrap.dedent(WORK), str(folder)]


def _by_strace(tmp_path: Path) -> tuple[int, int] | None:
    if shutil.which("strace") is None:
        return None
    out = tmp_path / "strace.txt"
    tracer = ["strace", "-f", "-qq", "-o", str(out), "-e", "trace=fdatasync,fsync,msync"]
    groups = _run([*tracer, *_work(tmp_path / "straced")], {})
    if groups is None:
        return None
    calls = [line for line in out.read_text().splitlines() if "sync(" in line]
    return groups, len(calls)


def _by_preload(tmp_path: Path) -> tuple[int, int] | None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    source, library = tmp_path / "counter.c", tmp_path / "counter.so"
    source.write_text(textwrap.dedent(COUNTER))
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"],
        capture_output=True,
        check=False,
    )
    if built.returncode != 0:
        return None
    out = tmp_path / "calls.txt"
    env = {"LD_PRELOAD": str(library), "SYNCS_TO": str(out)}
    groups = _run(_work(tmp_path / "preloaded"), env)
    return None if groups is None else (groups, int(out.read_text()) if out.exists() else 0)


def test_every_group_that_is_acknowledged_was_synced(tmp_path: Path) -> None:
    counts = [found for found in (_by_preload(tmp_path), _by_strace(tmp_path)) if found]
    for groups, syncs in counts:
        assert groups == 50
        assert syncs >= groups, f"{groups} groups were acknowledged with {syncs} syncs"
    log = LmdbLog(tmp_path / "data", map_bytes=64 << 20)
    flags = log._env.flags()
    assert (flags["sync"], flags["metasync"]) == (True, True)
    assert (flags["writemap"], flags["map_async"]) == (False, False)
    log.append(batch(1), 0, 0)
    log.close()
