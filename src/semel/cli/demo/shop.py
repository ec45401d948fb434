"""The shop of the demo: one task, which asks the payment provider for one charge."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from pathlib import Path

import semel

DATABASE = "shop.db"
PORT_FILE = "provider.port"
KEY = "payment:order-456"
ORDER = "order-456"
CENTS = 9900

# Every process of the demo runs in the demo's folder.
app = semel.App(f"sqlite:///{DATABASE}", namespace="demo", config=None)


@dataclass(frozen=True)
class Receipt:
    """What the customer gets."""

    charge: str
    order: str
    cents: int


@app.task(queue="payments", retention="30d", retry=semel.Retry(max_attempts=5))
def pay(order: str, cents: int) -> Receipt:
    """Charge a card. However often this runs, the provider sees one effect key."""
    return charge(order, cents, idempotency_key=semel.effect_key("charge"))


def charge(order: str, cents: int, *, idempotency_key: str) -> Receipt:
    """The provider's API, as any other one."""
    connection = http.client.HTTPConnection("127.0.0.1", int(Path(PORT_FILE).read_text()), timeout=30)
    try:
        body = json.dumps({"order": order, "cents": cents})
        connection.request("POST", "/charges", body, {"Idempotency-Key": idempotency_key})
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return Receipt(answer["charge"], order, cents)
