"""Tables of plain text that never break a cell where it matters.

Piped, a table is as wide as its cells need. On a terminal it fits: the columns that one can do
without are dropped, in the order that the table names them; the last column may take what room is
left, cut short or wrapped. An id, a state or a time is whole, or not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = "  "
FLEXIBLE_MIN = 12


class Layout(NamedTuple):
    """What one can do without, first what goes first; and what becomes of a long last column."""

    drop: tuple[str, ...] = ()
    cut: bool = False


def lines_of(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    width: int | None = None,
    layout: Layout = Layout(),  # noqa: B008 - a value
) -> list[str]:
    """Lay a table out, its heading first, in `width` columns if so many are given."""
    natural = [
        max(map(cell_len, (name, *(row[at] for row in rows)))) for at, name in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    if width is not None:
        for name in layout.drop:
            if _least(natural, kept) <= width:
                break
            kept = [at for at in kept if columns[at] != name]
    widths = {at: natural[at] for at in kept}
    if width is not None:
        others = sum(widths[at] + len(GAP) for at in kept[:-1])
        last = kept[-1]
        widths[last] = min(natural[last], max(width - others, FLEXIBLE_MIN))
    lines: list[str] = []
    for row in (columns, *rows):
        lines += _row(row, kept, widths, right, cut=layout.cut)
    return lines


def _least(natural: Sequence[int], kept: Sequence[int]) -> int:
    fixed = sum(natural[at] + len(GAP) for at in kept[:-1])
    return fixed + min(natural[kept[-1]], FLEXIBLE_MIN)


def _row(
    row: Sequence[str],
    kept: Sequence[int],
    widths: dict[int, int],
    right: Sequence[bool],
    *,
    cut: bool,
) -> list[str]:
    """Write a row, on several lines if its last cell is wrapped."""
    *first, last = kept
    head = [_set(row[at], widths[at], right=right[at]) for at in first]
    width, text = widths[last], row[last]
    if cell_len(text) <= width:
        parts = [_set(text, width, right=right[last])]
    elif cut:
        parts = [set_cell_size(text, width - 1).rstrip() + "…"]
    else:
        parts = chop_cells(text, width)
    margin = " " * (sum(widths[at] + len(GAP) for at in first))
    begun = GAP.join([*head, parts[0]]).rstrip()
    return [begun, *(f"{margin}{part}".rstrip() for part in parts[1:])]


def _set(text: str, width: int, *, right: bool) -> str:
    spaces = " " * (width - cell_len(text))
    return spaces + text if right else text + spaces
