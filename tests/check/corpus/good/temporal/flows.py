"""Workflows of Temporal that are in order."""

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    import requests


@dataclass
class Order:
    id: str


@activity.defn
def charge(order: Order) -> str:
    print(time.time())
    return requests.post("https://bank").text


class Activities:
    @activity.defn
    async def ship(self, order: Order) -> str:
        return open(order.id).read()


@workflow.defn(name="order", sandboxed=False)
class OrderWorkflow:
    @workflow.init
    def __init__(self, order: Order) -> None:
        self.began = workflow.now()
        self.pending: asyncio.Queue[str] = asyncio.Queue()
        self.done = False
        self.lock = asyncio.Lock()

    @workflow.run
    async def run(self, order: Order) -> str:
        workflow.logger.info("began %s", order.id)
        if not workflow.unsafe.is_replaying():
            print("only the first time")
        with workflow.unsafe.sandbox_unrestricted():
            print("asked for")
        await workflow.wait_condition(lambda: self.done, timeout=timedelta(hours=1))
        number = workflow.random().randint(1, 6)
        name = f"{workflow.uuid4()}-{workflow.time()}-{number}"
        try:
            await workflow.execute_activity(charge, order, start_to_close_timeout=timedelta(seconds=3))
            await workflow.execute_activity_method(
                Activities.ship, order, retry_policy=RetryPolicy(maximum_attempts=3)
            )
        except ActivityError as error:
            raise ApplicationError("no") from error
        done, pending = await workflow.wait([asyncio.create_task(asyncio.sleep(1))])
        for task in done:
            await task
        for each in workflow.as_completed([asyncio.sleep(2)]):
            await each
        workflow.continue_as_new(order)
        return name

    @workflow.signal
    async def stop(self, name: str) -> None:
        async with self.lock:
            await self.pending.put(name)
        self.done = True

    @workflow.query
    def is_done(self) -> bool:
        return self.done


def inside() -> bool:
    try:
        return workflow.in_workflow()
    except RuntimeError:
        return False


async def send(text: str) -> None:
    if inside():
        await workflow.execute_activity(charge, Order(text))
    else:
        requests.post(text)
    if workflow.in_workflow():
        return
    print("outside of a workflow")


@workflow.defn
class SendWorkflow:
    @workflow.run
    async def run(self, text: str) -> None:
        await send(text)
        workflow.set_signal_handler("stop", lambda: workflow.logger.info("stop"))
