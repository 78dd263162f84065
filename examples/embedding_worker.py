"""Remembers what agents have done: embeds texts, and finds them again by meaning.

It takes tasks of type `embed` for the agent EmbeddingWorker, such as follow-ups make of finished
tasks, and answers tasks of type `search`. wordllama has its weights in its own package, so nothing
is downloaded. The vectors are in memory, which is enough for an example: after a restart the tasks'
params are still in rota's log, to be embedded again.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import wordllama
from pydantic import BaseModel

from rota.client import Context, Worker

AGENT = "EmbeddingWorker"
worker = Worker(concurrency=2)


class Memory:
    """Texts and their vectors."""

    def __init__(self) -> None:
        folder = Path(wordllama.__file__).parent  # its loader would look elsewhere
        self._model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[str, np.ndarray]] = {}

    def add(self, name: str, text: str) -> int:
        """Embed a text under a name; one that is there is replaced."""
        vector = self._embedded(text)
        with self._lock:
            self._rows[name] = (text, vector)
        return len(vector)

    def nearest(self, text: str, count: int) -> list[dict[str, Any]]:
        """Give the texts that are nearest in meaning, best first."""
        with self._lock:
            rows = list(self._rows.items())
        if not rows:
            return []
        scores = np.stack([vector for _, (_, vector) in rows]) @ self._embedded(text)
        best = np.argsort(-scores)[:count]
        return [
            {"id": rows[n][0], "text": rows[n][1][0], "score": round(float(scores[n]), 4)}
            for n in best
        ]

    def _embedded(self, text: str) -> np.ndarray:
        vector = np.asarray(self._model.embed([text])[0], dtype=np.float32)
        length = float(np.linalg.norm(vector))
        return vector / length if length else vector


class Search(BaseModel):
    """What is looked for."""

    query: str
    limit: int = 3


memory = Memory()


@worker.task("embed", agent=AGENT)
def embed(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
    """Take {"text"} or whatever else a follow-up carries, under {"id"} if it names one."""
    text = params.get("text") or json.dumps(params, sort_keys=True)
    name = str(params.get("id") or ctx.task_id)
    return {"id": name, "dimensions": memory.add(name, str(text))}


@worker.task("search", agent=AGENT)
def search(wanted: Search) -> list[dict[str, Any]]:
    return memory.nearest(wanted.query, wanted.limit)


if __name__ == "__main__":
    worker.main()
