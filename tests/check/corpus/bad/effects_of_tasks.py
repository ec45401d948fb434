"""Tasks that change something outside, and would do it twice; and what counts as I/O in workflows."""

import aiokafka
import httpx
import prometheus_client
import requests
import semel
import smtplib
import statsd
import stripe
from mcp import ClientSession
from opentelemetry import metrics

app = semel.App()
orders = prometheus_client.Counter("orders", "Orders that were seen")
session = requests.Session()
counter = metrics.get_meter("shop").create_counter("orders")
gauges = statsd.StatsClient()


@app.task
def charge(order: str) -> None:
    requests.post("https://bank.example/charge", json={"order": order})  # expect: D18
    requests.request("PUT", "https://bank.example/charge")  # expect: D18
    session.delete("https://bank.example/charge")  # expect: D18
    stripe.PaymentIntent.create(amount=1)  # expect: D18
    mail(order)


def mail(order: str) -> None:
    with smtplib.SMTP("mail.example") as smtp:
        smtp.send_message(order)  # expect: D18


@app.task
async def publish(order: str, producer: aiokafka.AIOKafkaProducer) -> None:
    await producer.send_and_wait("orders", order)  # expect: D18
    async with httpx.AsyncClient() as client:
        await client.patch("https://shop.example/orders")  # expect: D18


@app.workflow
async def process(ctx: semel.Context, mcp: ClientSession) -> None:
    orders.inc()  # expect: D05
    counter.add(1)  # expect: D05
    gauges.incr("orders")  # expect: D05
    await mcp.call_tool("search")  # expect: D05
