"""Tables fit a terminal by leaving out columns, never by breaking an id; piped they are whole."""

from __future__ import annotations

import pytest
from support.terminal import typed_at

from rota.cli.tables import Layout, lines_of

COLUMNS = ("task", "agent", "created", "note")
ROWS = [("tsk_12345678", "crawler-1", "2026-11-16T05:41:12Z", "it broke: " + "word " * 10)]
LEFT = (False,) * 4
LAYOUT = Layout(drop=("created", "note", "agent"), cut=True)


def lines(width: int | None, layout: Layout = LAYOUT) -> list[str]:
    return lines_of(COLUMNS, ROWS, LEFT, width, layout)


def test_without_a_width_nothing_is_left_out_or_cut() -> None:
    heading, row = lines(None)
    assert heading.split() == list(COLUMNS)
    assert row.endswith("word word")


@pytest.mark.parametrize("width", range(12, 120))
def test_whatever_is_shown_fits_and_is_whole(width: int) -> None:
    heading, row = lines(width)
    assert len(row) <= width
    assert row.startswith("tsk_12345678")
    for name, cell in zip(COLUMNS[1:3], ROWS[0][1:3], strict=True):
        assert (name in heading.split()) == (cell in row)


def test_columns_go_in_the_order_that_is_named() -> None:
    assert lines(80)[0].split() == ["task", "agent", "created", "note"]
    assert lines(50)[0].split() == ["task", "agent", "note"]
    assert lines(30)[0].split() == ["task", "agent"]
    assert lines(15)[0].split() == ["task"]


def test_a_long_last_cell_is_cut_or_wrapped_under_itself() -> None:
    assert lines(60)[1].endswith("…")
    wrapped = lines(60, Layout())
    assert len(wrapped) > 2
    assert all(line.startswith(" " * 20) for line in wrapped[2:])


def test_wide_characters_are_counted_as_wide() -> None:
    shown = lines_of(("a", "b"), [("日本語", "x"), ("abc", "y")], (False, False))
    assert [line.index(end) for line, end in zip(shown[1:], "xy", strict=True)] == [5, 8]


@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_a_list_on_a_terminal_has_a_line_for_each_task(server, client, columns):
    agent = f"narrow-{columns}"
    ids = [client.submit("browse", agent)["taskId"] for _ in range(3)]
    ids.append(client.submit("fail", agent, params={"message": "long " * 50})["taskId"])
    client.wait(ids[-1], 10)
    heading, *rows = typed_at(columns, "list", "--agent", agent, url=server.url)
    assert sorted(row.split()[0] for row in rows) == sorted(ids)
    assert all(len(row) <= columns for row in rows)
    assert "state" in heading
    states = {row.split()[0]: row for row in rows}
    assert all(" ready" in states[task] for task in ids[:3])
    assert (" created " in heading) == (columns >= 80)


def test_a_list_in_a_pipe_is_whole(rota, client):
    task = client.submit("fail", "piped", params={"message": "long " * 100})["taskId"]
    client.wait(task, 10)
    _, row = rota("list", "--agent", "piped").stdout.splitlines()
    assert row.rstrip().endswith(("long " * 100).strip())


def test_one_task_on_a_terminal_keeps_its_long_values(server, client):
    task = client.submit("echo", "long", params={"text": "x" * 300})["taskId"]
    client.wait(task, 10)
    shown = typed_at(80, "get", task, url=server.url)
    assert all(len(line) <= 80 for line in shown)
    assert "".join(line.strip() for line in shown).count("x" * 300) >= 1


def test_types_fit_a_terminal(server):
    shown = typed_at(80, "types", url=server.url)
    assert all(len(line) <= 80 for line in shown)
    assert "maxConcurrent" in shown[0]
