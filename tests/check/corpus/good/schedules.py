"""Schedules are changed by whoever answers requests, and read by everybody."""

import random
import time

import pandas
import semel

app = semel.App()


@app.task
async def report(run: semel.Run) -> list[str]:
    time.sleep(0.1)
    pandas.DataFrame().apply(len)
    random.random()
    return [one.id for one in await app.schedules.list()]


class Store:
    def put(self, id: str) -> None: ...


class Shop:
    schedules = Store()


@app.task
async def keep() -> None:
    Shop().schedules.put("mine")


async def on_request(user: str) -> None:
    await app.schedules.put(f"report:{user}", report, cron="@daily")
    await app.apply()
