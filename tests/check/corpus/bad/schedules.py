"""Tasks and workflows that change schedules."""

import semel
from elsewhere import app as other

app = semel.App()
schedules = app.schedules


@app.task
async def nightly() -> None: ...


async def reschedule(user: str) -> None:
    await app.schedules.put(f"nightly:{user}", nightly, cron="@daily")  # expect: D17


@app.task
async def change(user: str) -> None:
    await reschedule(user)
    await app.schedules.edit("nightly", cron="@hourly")  # expect: D17
    await app.schedules.trigger("nightly")  # expect: D17
    await schedules.delete("nightly")  # expect: D17
    await app.apply()  # expect: D17


@app.task
def change_without_await() -> None:
    app.sync.schedules.pause("nightly")  # expect: D17
    app.sync.apply()  # expect: D17


@other.task
async def change_another() -> None:
    await other.schedules.resume("nightly")  # expect: D17


@app.workflow
async def flow(ctx: semel.Context) -> None:
    await app.schedules.backfill("nightly")  # expect: D17


def make(made: semel.App) -> None:
    @made.task
    async def inner() -> None:
        await made.schedules.delete("nightly")  # expect: D17
