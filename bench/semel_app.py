"""The app that is measured. `SEMEL_URL` says where it lives."""

import semel


async def noop() -> int:
    return 1


def noop_sync() -> int:
    return 1


def build(url: str | None = None) -> semel.App:
    """Another app with the same tasks, on the same database or another one."""
    made = semel.App(url, auto_migrate=True)
    made.task(noop)
    made.task(noop_sync)
    return made


app = build()
