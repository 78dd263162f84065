"""Every guide, followed to the letter: what it says to type works and shows what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.guide import Step, follow, is_kept, read_page

ROOT = Path(__file__).parents[2]
FOLLOWED = [ROOT / f"docs/reference/{name}.md" for name in ("automechanica", "metrics")]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs/guides").glob("*.md")), *FOLLOWED]


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_a_guide_does_what_it_says(path: Path, tmp_path: Path) -> None:
    page = read_page(path)
    assert [item for item in page if isinstance(item, Step)], "nothing to do in it"
    for step, seen in follow(page, tmp_path):
        assert is_kept(step.promised, seen), (
            f"{path.name} says:\n$ {step.command}\n{step.promised}\n\nbut this is seen:\n{seen}"
        )


def test_what_differs_by_nature_may_differ_and_nothing_else() -> None:
    assert is_kept("tsk_0nixkM5T cancelled", "tsk_0o0hUV2w cancelled\n")
    assert is_kept("head 14:66cbdc141a4061e21a22", "head 9:00cbdc141a4061e21a22")
    assert is_kept("first\n...\nlast", "first\nwhatever\ncomes\nlast")
    assert is_kept('{"a":1,...}', '{"a":2,"b":3}')
    assert not is_kept("tsk_0nixkM5T cancelled", "tsk_0o0hUV2w failed")
    assert not is_kept("one line", "one line\nand another")
