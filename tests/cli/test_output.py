"""What is printed cannot be forged by what is printed."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from rota.cli.output import print_table
from rota.logs import JsonFormatter, TextFormatter, clean

FORGED = "x\n2026-01-01T00:00:00Z info rota: all is well\x1b[2J\u2028\x9b"


def record(message: str, *, failing: bool = False) -> logging.LogRecord:
    info = None
    if failing:
        try:
            raise ValueError(FORGED)
        except ValueError:
            info = sys.exc_info()
    made = logging.LogRecord("rota.test", logging.ERROR, "", 0, "said: %s", (message,), info)
    made.created = 1_700_000_000.5
    return made


@pytest.mark.parametrize("character", ["\n", "\r", "\x1b", "\x7f", "\x9b", "\u2028", "\u202e"])
def test_control_characters_are_escaped(character):
    assert clean(f"a{character}b").isascii()
    assert clean(f"a{character}b").isprintable()


def test_ordinary_text_is_left_alone():
    assert clean("Grüße, 世界 🙂") == "Grüße, 世界 🙂"


def test_record_is_one_line():
    line = TextFormatter().format(record(FORGED))
    assert line.startswith("2023-11-14T22:13:20.5Z error rota.test: said: x\\n2026")
    assert line.isprintable()


def test_traceback_is_indented():
    first, *rest = TextFormatter().format(record("x", failing=True)).split("\n")
    assert first.endswith("said: x")
    assert rest
    assert all(line.startswith("    ") and line.isprintable() for line in rest)


def test_record_as_json_is_one_line_of_ascii():
    line = JsonFormatter().format(record(FORGED, failing=True))
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["message"] == f"said: {FORGED}"


def test_table_neither_forges_nor_interprets(capsys):
    print_table(("a", "b"), [(FORGED, "[red]text[/red]"), (1, None)])
    out = capsys.readouterr().out
    assert "[red]text[/red]" in out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 3
