"""A new field of a task is one line in the table: asked for, recorded, kept, shown.

The package is copied, a made-up wish is added as the last line of `Plan`, and a process of its own
takes it from a body over the log and a snapshot to the view.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import rota

LINES = """\
    region: Annotated[str | None, Wish("region", "where it shall run")] = None
    cores: Annotated[int | None, Wish("cores", "how many it needs", 1, 64)] = None
    is_nightly: Annotated[bool | None, Wish("nightly", "may wait for the night")] = None
"""
JOURNEY = """
import json
from pydantic import ValidationError
from rota.http.answers import TaskView
from rota.http.models import SubmitBody
from rota.http.submissions import native_request
from rota.http.views import native
from rota.projections.state import State
from rota.testing import InMemoryRota

said = {"region": "eu", "cores": 8, "nightly": True}
body = SubmitBody.model_validate({"agentId": "ann", "action": "crawl", **said})
plain = SubmitBody.model_validate({"agentId": "ann", "action": "crawl"})
for wrong in ({"cores": 65}, {"region": ""}, {"nightly": 1}):
    try:
        SubmitBody.model_validate({"agentId": "ann", "action": "crawl", **wrong})
    except ValidationError:
        continue
    raise AssertionError(wrong)
with InMemoryRota() as rota:
    task, other = (
        rota.submit(native_request(each, "ann", "")._replace(executor="script"))
        for each in (body, plain)
    )
    stored = json.loads(rota.log.read(0, 100)[1].body)
    assert stored["kind"] == "task_submitted"
    assert {name: stored["data"][name] for name in ("region", "cores", "is_nightly")} == {
        "region": "eu", "cores": 8, "is_nightly": True
    }
    assert rota.task(other).plan is None
    rota.crash()
    assert said.items() <= rota.view(task).items()
    again = State.load(rota.shard.state.dump())
    assert said.items() <= native(again.tasks.by_id[task]).items()
    assert not said.keys() & rota.view(other).keys()
schema = SubmitBody.model_json_schema()["properties"]
assert schema["cores"]["anyOf"][0] == {"maximum": 64, "minimum": 1, "type": "integer"}
assert schema["region"]["description"] == "where it shall run"
assert said.keys() <= TaskView.model_json_schema()["properties"].keys()
print("arrived")
"""


def test_a_line_in_the_table_is_enough_for_a_new_wish(tmp_path: Path) -> None:
    package = Path(rota.__file__).parent
    shutil.copytree(package, tmp_path / "rota", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "rota/domain/plan.py"
    head, mark, rest = table.read_text().partition("\n\nNO_PLAN = ")
    table.write_text(head.rstrip("\n") + "\n" + LINES + mark + rest)
    run = subprocess.run(
        [sys.executable, "-c", JOURNEY],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.stdout, run.stderr) == ("arrived\n", "")
