"""The worker of the README: run it with `rota worker first_worker`, or `python first_worker.py`."""

from rota.client import Worker

worker = Worker()


@worker.task("greet")
async def greet(name: str = "world") -> dict[str, str]:
    return {"text": f"hello {name}"}


if __name__ == "__main__":
    worker.main()
