"""The picture in ARCHITECTURE.md is the code's: every import between rooms is an arrow in it, and
every arrow an import; and a task walks through no more modules than the page says.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
SMALL = {
    "calendars", "clock", "command_section", "durations", "environment", "errors", "ids", "logs", "presets", "sections",
    "setting_names",
    "shown_settings", "wording", "__main__",
}  # fmt: skip
"""Single modules that are not drawn: whoever needs one uses it."""
_LINE = re.compile(r"^ *(\w+)(?: +─+▶ (.+))?$")

Arrows = dict[str, set[str]]


def drawn() -> Arrows:
    """Read the picture: a room on each line, and the rooms that it imports from."""
    picture = re.search(r"^### The picture$.*?^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert picture, "ARCHITECTURE.md has no picture"
    found: Arrows = {}
    for line in picture[1].splitlines():
        parts = _LINE.match(line)
        assert parts, f"not a line of the picture: {line!r}"
        found[parts[1]] = set((parts[2] or "").split())
    return found


def real() -> Arrows:
    """Read the code: who imports whom, room by room."""
    graph = grimp.build_graph("rota", cache_dir=None)
    found: Arrows = {room_of(module): set() for module in graph.modules}
    for module in graph.modules:
        targets = graph.find_modules_directly_imported_by(module)
        found[room_of(module)] |= {room_of(target) for target in targets}
    hidden = SMALL | {""}
    return {room: to - hidden - {room} for room, to in found.items() if room not in hidden}


def room_of(module: str) -> str:
    """Name the room of a module; the package itself is none."""
    return module.split(".")[1] if "." in module else ""


def test_the_picture_is_the_code() -> None:
    assert drawn() == real()


def test_arrows_point_down() -> None:
    below: set[str] = set()
    for room, targets in reversed(drawn().items()):
        assert targets <= below, f"{room} points up, or at nothing: {targets - below}"
        below.add(room)


def test_a_task_walks_no_further_than_the_page_says() -> None:
    named = re.search(r"passes (\d+) modules", PAGE)
    assert named, "ARCHITECTURE.md does not say how many modules a task passes"
    done = subprocess.run(
        [sys.executable, "benchmarks/walk.py"],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    walked = re.search(r"^(\d+) modules", done.stdout, re.MULTILINE)
    assert walked
    assert int(walked[1]) <= int(named[1]), done.stdout
