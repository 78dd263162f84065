"""What commands print: kept within bounds, whatever it is, and never in anybody's way."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from support.commands import Shell, python, ran

from rota.executors.said import Said

if TYPE_CHECKING:
    from pathlib import Path

    from rota.executors.port import Note


def said(*chunks: bytes, bytes_max: int = 1 << 30) -> tuple[Said, list[Note]]:
    """Give what is made of chunks of standard output."""
    notes: list[Note] = []

    async def story() -> Said:
        it = Said(notes.append, bytes_max)
        for chunk in chunks:
            it.outputs[0].data_received(chunk)
        for output in it.outputs:
            output.connection_lost(None)
        await it.finish()
        return it

    return asyncio.run(story()), notes


@pytest.mark.parametrize(
    ("chunks", "result"),
    [
        ((b'{"a":1}\n', b"bye\n"), b'{"a":1}'),
        ((b'{"a"', b":1}"), b'{"a":1}'),
        ((b'{"a":1}\n{no\n[2]\n{no\n',), b"[2]"),
        ((b'{"a":1}\r\n',), b'{"a":1}\r'),
        ((b' {"a":1}\n"text"\n12\n',), None),
        ((b"", b"\n\n"), None),
    ],
)
def test_the_result_is_the_last_line_that_is_an_object_or_an_array(
    chunks: tuple[bytes, ...], result: bytes | None
) -> None:
    assert said(*chunks)[0].result == result


def test_a_result_that_is_too_long_is_no_result_and_its_rest_none_either() -> None:
    it, notes = said(b"[1]\n[" + b"1," * 300_000, b"1," * 300_000, b"]\n", b'{"x":1')
    assert it.is_result_cut
    assert sum(len(note.lines) for note in notes) == 3
    assert not said(b"[" + b"1," * 600_000, b"\n[2]\n")[0].is_result_cut


def test_the_rest_of_a_long_line_is_never_taken_for_a_line() -> None:
    it, _ = said(b"x" * 1_100_000, b"{}", b"\n")
    assert it.result is None


def test_lines_are_told_until_the_log_is_full_and_the_tail_is_kept() -> None:
    it, notes = said(b"\n".join(b"%d" % n for n in range(100_000)))
    lines = [line for note in notes for line in note.lines]
    assert lines == [str(n) for n in range(1000)]
    assert it.tail.endswith("99999")


def test_too_much_is_told_once_and_nothing_is_read_after_it() -> None:
    it, notes = said(b"x" * 50 + b"\n", b"y" * 60, b"[1]\n", bytes_max=100)
    assert it.is_too_much
    assert it.result is None
    assert [note.lines for note in notes] == [("x" * 50,)]


def test_odd_output_is_kept_as_text_and_within_bounds(tmp_path: Path) -> None:
    code = "import sys; w = sys.stdout.buffer.write; w(b'\\xff\\x00a\\r\\n'); w(b'y' * 3000000); w(b'\\n' * 5000)"
    outcome, shell = asyncio.run(ran(tmp_path, *python(code)))
    assert outcome.ok
    assert shell.lines[0] == "\ufffd\0a"
    assert len(shell.lines) <= 1000
    assert max(map(len, shell.lines)) == 2000


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('[' * 100 + ']' * 100)", "result_too_deep"),
        ("print('[' * 100_000 + ']' * 100_000)", "result_too_deep"),
        ("print('[' + '1,' * 600000 + '1]')", "result_too_large"),
    ],
)
def test_a_result_on_the_output_is_within_bounds(tmp_path: Path, code: str, expected: str) -> None:
    outcome, _ = asyncio.run(ran(tmp_path, *python(code)))
    assert outcome.code == expected


def test_one_that_closes_its_outputs_goes_on(tmp_path: Path) -> None:
    code = (
        "import os\nprint('[1]', flush=True)\nos.close(1); os.close(2)\nopen('late', 'w').close()"
    )
    outcome, _ = asyncio.run(ran(tmp_path, *python(code), resultFile=None))
    assert outcome.result == [1]


def test_one_that_passes_its_output_on_does_not_hold_up_its_end(tmp_path: Path) -> None:
    """A stranger that was given the pipe keeps it open: this process, by a socket."""
    code = """
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1])
    socket.send_fds(s, [b"x"], [1])
    s.recv(1)
print("[1]")
"""

    def take(listener: socket.socket) -> list[int]:
        with listener, listener.accept()[0] as line:
            fds = socket.recv_fds(line, 1, 1)[1]
            line.sendall(b"x")
        return fds

    async def story() -> Any:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        holding = asyncio.create_task(asyncio.to_thread(take, listener))
        shell = Shell(tmp_path, (*python(code), str(tmp_path / "s")))
        outcome = await shell.run()
        await shell.executor.close()
        for fd in await holding:
            os.close(fd)
        return outcome

    assert asyncio.run(story()).result == [1]


@pytest.mark.parametrize("line", ["b'x' * 65536", "b''", "b'{'", "b'::progress 1'"])
def test_a_flood_keeps_nobody_from_their_work(tmp_path: Path, line: str) -> None:
    """Others go on while it floods; it is ended when it has printed what it may."""
    code = f"import os\nchunk = {line} + b'\\n'\nchunk *= 65536 // len(chunk) or 1\nwhile True: os.write(1, chunk)"

    async def story() -> None:
        flood = Shell(tmp_path, python(code), outputBytesMax=30 << 20)
        other = Shell(tmp_path, ("echo", "[1]"))
        flooding = asyncio.create_task(flood.run())
        assert (await other.run("other")).ok
        assert (await flooding).code == "output_limit"
        for shell in (flood, other):
            await shell.executor.close()

    asyncio.run(story())
