"""Every example, run as its page says, against a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from support.server_process import REPOSITORY, ServerProcess
from support.worker_process import WorkerProcess

from rota.client.sync_client import JsonClient

EXAMPLES = REPOSITORY / "examples"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ServerProcess(tmp_path_factory.mktemp("served") / "data") as process:
        yield process


@pytest.fixture
def rota(server):
    with JsonClient(server.url) as client:
        yield client


def run(name, server, folder):
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "ROTA_URL": server.url}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=env,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def working(name, server, folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    return WorkerProcess(folder, name, server.url, name=name)


def test_every_example_is_on_the_page():
    page = (EXAMPLES / "README.md").read_text()
    assert set(re.findall(r"\((\w+\.py)\)", page)) == {p.name for p in EXAMPLES.glob("*.py")}


def test_the_first_worker_greets(server, rota, tmp_path, monkeypatch):
    with working("first_worker", server, tmp_path, monkeypatch) as worker:
        task = rota.submit("greet", "me", params={"name": "bob"})
        assert rota.wait(task["taskId"], 60)["result"] == {"text": "hello bob"}
        assert worker.stop() == 0


def test_the_crawler_sums_up_its_pages(server, tmp_path):
    shown = run("crawler_pipeline.py", server, tmp_path)
    assert shown.startswith("finished 7 tasks; most used words: {")


def test_the_fleet_asks_again_and_keeps_customers_apart(server, tmp_path):
    answered, at_once = run("llm_fleet.py", server, tmp_path).splitlines()
    assert re.fullmatch(r"29 answered, 1 refused, \d+ asked again", answered)
    assert at_once == "at most at once for a customer: 1"


def test_the_embedding_worker_finds_what_it_has_embedded(server, rota, tmp_path, monkeypatch):
    texts = {"brakes": "brake pads for a small car", "soup": "a recipe for tomato soup"}
    with working("embedding_worker", server, tmp_path, monkeypatch) as worker:
        made = [
            rota.submit("embed", "EmbeddingWorker", params={"id": name, "text": text})["taskId"]
            for name, text in texts.items()
        ]
        assert {task["state"] for task in rota.wait_many(made, 60)} == {"succeeded"}
        for query, name in (("vehicle parts", "brakes"), ("cooking dinner", "soup")):
            task = rota.submit("search", "EmbeddingWorker", params={"query": query, "limit": 1})
            (found,) = rota.wait(task["taskId"], 60)["result"]
            assert found["id"] == name
        assert worker.stop() == 0
