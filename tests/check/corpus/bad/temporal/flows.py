"""Workflows of Temporal."""

import asyncio
import random
import time
import uuid
from datetime import datetime, timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio import workflow as wf
from temporalio.workflow import defn, run

with wf.unsafe.imports_passed_through():
    import requests
    from helpers import ask_price


@activity.defn
async def charge(cents: int) -> None:
    requests.post("https://bank")


class Above:
    @wf.signal
    def nudge(self) -> None:
        print("nudged")  # expect: D14


@wf.defn
class OrderWorkflow(Above):
    def __init__(self) -> None:
        self.began = datetime.now()  # expect: D01

    @wf.run
    async def run(self, order: str) -> str:
        await wf.execute_activity(charge, 3, start_to_close_timeout=timedelta(seconds=3))
        await charge(3)  # expect: D16
        ask_price(order)
        self._inner()
        await wf.wait_condition(lambda: random.random() > 0.5)  # expect: D02
        for next_one in asyncio.as_completed([]):  # expect: D11
            await next_one
        await asyncio.wait([asyncio.create_task(asyncio.sleep(1))])  # expect: D11
        await Client.connect("localhost:7233")  # expect: D05
        return str(uuid.uuid4())  # expect: D03

    @wf.signal(name="stop")
    async def stop(self) -> None:
        time.sleep(1)  # expect: D04

    @wf.query
    def state(self) -> float:
        return time.time()  # expect: D01

    @wf.update
    async def change(self, value: int) -> None:
        print(value)  # expect: D14

    @change.validator
    def check(self, value: int) -> None:
        print(value)  # expect: D14

    def _inner(self) -> None:
        open("x")  # expect: D06

    def not_called(self) -> None:
        open("y")


def make() -> type:
    @defn
    class Inner:
        @run
        async def run(self) -> float:
            return time.time()  # expect: D01

    return Inner
