"""A fleet of agents that ask a model, which is a fake one that is overloaded now and then.

Three agents share one worker. Urgent questions go first inside an agent, `key` lets only one
question about the same customer run at a time, and a model that is busy is asked again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from pydantic import BaseModel

from rota.client import Context, Fail, Retry, RotaClient, TaskBody, Worker

AGENTS = ("researcher", "writer", "critic")
worker = Worker(concurrency=6)


class Question(BaseModel):
    """What an agent is asked."""

    text: str
    customer: str


class FakeModel:
    """Answers after a moment; every fifth request is one too many, some are not allowed."""

    def __init__(self) -> None:
        self.asked = 0
        self.busy: Counter[str] = Counter()
        self.most_at_once: Counter[str] = Counter()

    async def complete(self, customer: str, text: str) -> str:
        self.asked = number = self.asked + 1
        self.busy[customer] += 1
        self.most_at_once[customer] = max(self.most_at_once[customer], self.busy[customer])
        try:
            await asyncio.sleep(0.01)
            if number % 5 == 0:
                raise OverflowError("429 too many requests")
            if "secret" in text:
                raise PermissionError("not allowed")
            return text.upper()
        finally:
            self.busy[customer] -= 1


model = FakeModel()


@worker.task("ask_model", agent=AGENTS)
async def ask_model(ctx: Context, question: Question) -> dict[str, Any]:
    ctx.progress("asking")
    try:
        answer = await model.complete(question.customer, question.text)
    except OverflowError as error:
        raise Retry(str(error), after=0.05, code="overloaded") from error
    except PermissionError as error:
        raise Fail(str(error), code="not_allowed") from error
    return {"answer": answer, "attempt": ctx.attempt, "by": ctx.agent}


def questions() -> list[TaskBody]:
    """Write thirty tasks: for three agents and five customers, every third one urgent."""
    return [
        {
            "action": "ask_model",
            "agent": AGENTS[n % 3],
            "priority": "critical" if n % 3 == 0 else "normal",
            "key": f"customer-{n % 5}",
            "params": {"text": "a secret" if n == 7 else f"question {n}", "customer": f"c{n % 5}"},
            "retry": {"max_attempts": 6, "kind": "fixed", "base_s": 0.02},
        }
        for n in range(30)
    ]


async def main() -> None:
    working = asyncio.create_task(worker.run(signals=False))
    async with RotaClient() as rota:
        made = await rota.submit_many(questions())
        tasks = await rota.wait_many([task.task_id for task in made], timeout_s=60)
    states = Counter(task.state for task in tasks)
    again = sum(task.attempt > 1 for task in tasks)
    print(f"{states['succeeded']} answered, {states['failed']} refused, {again} asked again")
    print("at most at once for a customer:", max(model.most_at_once.values()))
    worker.stop()
    await working


if __name__ == "__main__":
    asyncio.run(main())
