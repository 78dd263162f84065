"""Every page can be read and followed: its lines are short, its links lead somewhere, it is found."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")],
)
LINE_CHARS_MAX = 120
CODE_CHARS_MAX = 160
"""What a program prints is not ours to break."""

_LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HEADING = re.compile(r"#{1,6} +(.*?) *#*")
_SPAN = re.compile(r"`[^`]*`")


class Line(NamedTuple):
    """A line of a page, and whether it is within a block of code."""

    number: int
    text: str
    is_code: bool


def lines_of(path: Path) -> Iterator[Line]:
    """Go through a page."""
    fence = ""
    for number, text in enumerate(path.read_text().splitlines(), start=1):
        mark = re.match(r" *(```+|~~~+)", text)
        if fence:
            yield Line(number, text, is_code=True)
            fence = "" if mark and mark[1].startswith(fence) else fence
        else:
            fence = mark[1] if mark else ""
            yield Line(number, text, is_code=bool(mark))


def links_of(path: Path) -> Iterator[tuple[int, str]]:
    """Give the links of a page that lead to this repository, and the line that each is in.

    A link may be broken over two lines; what is written as code is none.
    """
    text = "\n".join("" if line.is_code else _SPAN.sub("", line.text) for line in lines_of(path))
    for found in _LINK.finditer(text):
        if not _ELSEWHERE.match(found[1]):
            yield text.count("\n", 0, found.start()) + 1, found[1]


def anchors_of(path: Path) -> set[str]:
    """Give the anchors that a page's headings get: lower case, no punctuation, dashes for spaces."""
    anchors: set[str] = set()
    seen: Counter[str] = Counter()
    for line in lines_of(path):
        heading = None if line.is_code else _HEADING.fullmatch(line.text)
        if heading is not None:
            words = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            anchors.add(f"{words}-{seen[words]}" if seen[words] else words)
            seen[words] += 1
    return anchors


def problem_with(page: Path, link: str) -> str | None:
    """Say why a link leads nowhere, if it does."""
    where, _, anchor = link.partition("#")
    target = (page.parent / where).resolve() if where else page
    if not target.is_relative_to(ROOT):
        return "leads out of the repository"
    if not target.exists():
        return "there is no such file"
    if anchor and (target.suffix != ".md" or anchor not in anchors_of(target)):
        return f"{target.name} has no such heading"
    return None


def named(path: Path) -> str:
    """Name a page as a reader would."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_lines_are_short_enough_to_be_read(page: Path) -> None:
    long = [
        f"{named(page)}:{line.number}: {len(line.text)} characters"
        for line in lines_of(page)
        if len(line.text) > (CODE_CHARS_MAX if line.is_code else LINE_CHARS_MAX)
    ]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [
        f"{named(page)}:{number}: {link}: {problem}"
        for number, link in links_of(page)
        if (problem := problem_with(page, link)) is not None
    ]
    assert not broken, "\n".join(broken)


def test_every_page_of_the_docs_is_found_from_the_first() -> None:
    first = DOCS / "README.md"
    found, left = {first}, [first]
    while left:
        page = left.pop()
        targets = {
            (page.parent / link.partition("#")[0]).resolve()
            for _, link in links_of(page)
            if not link.startswith("#")
        }
        fresh = {each for each in targets if each.suffix == ".md" and each.exists()} - found
        found |= fresh
        left += [each for each in fresh if each.is_relative_to(DOCS)]
    lost = [named(page) for page in PAGES if page.is_relative_to(DOCS) and page not in found]
    assert not lost, f"no page leads to {', '.join(lost)}"


def test_what_is_wrong_with_a_page_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\n## Two: a `thing`, 3\n\n## One\n\n[a](#x) `[b](c.md)`\n```\n[d](e.md)\n```\n"
    )
    assert [link for _, link in links_of(page)] == ["#x"]
    assert anchors_of(page) == {"one", "two-a-thing-3", "one-1"}
    assert [line.number for line in lines_of(page) if line.is_code] == [8, 9, 10]
