"""Tasks that look, and tasks whose effects carry a key."""

import httpx
import prometheus_client
import requests
import semel
import stripe
from mcp.types import TextContent

app = semel.App()
orders = prometheus_client.Counter("orders", "Orders that were seen")


@app.task
def look(order: str) -> int:
    orders.inc()
    requests.request("GET", "https://bank.example/charge")
    return requests.get("https://bank.example/charge").status_code


@app.task
def charge(order: str) -> None:
    stripe.PaymentIntent.create(amount=1, idempotency_key=semel.effect_key("charge"))


@app.task
async def refund(order: str) -> None:
    key = semel.current().effect_key("refund")
    await send(order, {"Idempotency-Key": key})


async def send(order: str, headers: dict[str, str]) -> None:
    async with httpx.AsyncClient() as client:
        await client.post("https://bank.example/refund", headers=headers)


@app.workflow
async def process(ctx: semel.Context, order: str) -> str:
    await ctx.execute_task(charge, order)
    return TextContent(type="text", text=order).text
