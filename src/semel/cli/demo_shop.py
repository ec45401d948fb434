"""The shop of the demo: a task that charges a card, the payment provider, its ledger, and impatient customers.

Every process of the demo runs in the demo's folder.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import semel

DATABASE = "shop.db"
PORT_FILE = "provider.port"
LEDGER = "ledger.jsonl"
KEY = "payment:order-456"
ORDER = "order-456"
CENTS = 9900
PATIENCE = "60s"

app = semel.App(f"sqlite:///{DATABASE}", namespace="demo", config=None)


@dataclass(frozen=True)
class Receipt:
    """What the customer gets."""

    charge: str
    order: str
    cents: int


@app.task(queue="payments", retention="30d", retry=semel.Retry(max_attempts=5))
def pay(order: str, cents: int) -> Receipt:
    """Charge a card. However often this runs, the provider sees the same effect key."""
    return charge(order, cents, idempotency_key=semel.effect_key("charge"))


def charge(order: str, cents: int, *, idempotency_key: str) -> Receipt:
    """Call the provider's API."""
    connection = http.client.HTTPConnection("127.0.0.1", int(Path(PORT_FILE).read_text()), timeout=30)
    try:
        body = json.dumps({"order": order, "cents": cents})
        connection.request("POST", "/charges", body, {"Idempotency-Key": idempotency_key})
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return Receipt(answer["charge"], order, cents)


@dataclass(frozen=True, slots=True)
class Entry:
    """One call to the provider. `charged` is False if an earlier call with the same key had charged the card."""

    at: float
    key: str
    order: str
    cents: int
    charge: str
    charged: bool


class LedgerDamaged(Exception):
    """The ledger holds something that the provider did not write."""


def read_ledger(folder: Path) -> list[Entry]:
    """Read every call so far, without a last line that is still being written."""
    try:
        lines = (folder / LEDGER).read_text(encoding="utf-8").split("\n")[:-1]
    except FileNotFoundError:
        return []
    try:
        return [Entry(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise LedgerDamaged(f"the ledger {folder / LEDGER} cannot be read: {error}") from error


class Ledger:
    """Every call that the provider got, on disk before the call is answered."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEDGER
        self._lock = threading.Lock()
        self._charges = {entry.key: entry.charge for entry in read_ledger(folder)}

    def call(self, key: str, order: str, cents: int) -> Entry:
        """Charge the card, unless this key has been charged before."""
        with self._lock:
            known = self._charges.get(key)
            charge = known or f"ch_{len(self._charges) + 1:04}"
            entry = Entry(time.time(), key, order, cents, charge, charged=known is None)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(entry)) + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._charges[key] = charge
            return entry


class Provider(BaseHTTPRequestHandler):
    """POST /charges with an Idempotency-Key: a second call with a key is answered with the first charge."""

    ledger: Ledger
    seconds: float

    def charge(self) -> None:
        """Write the call to the ledger, take some time as banks do, and answer."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        entry = self.ledger.call(self.headers["Idempotency-Key"], asked["order"], asked["cents"])
        time.sleep(self.seconds)
        answer = json.dumps({"charge": entry.charge}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        try:
            self.wfile.write(answer)
        except OSError:
            return  # the caller is dead; the charge stands

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the ledger is the log."""


setattr(Provider, "do_" + "POST", Provider.charge)  # http.server looks for this name


def run_provider(seconds: float) -> None:
    """Serve until stdin ends, which it does when the demo ends."""
    folder = Path.cwd()
    Provider.ledger = Ledger(folder)
    Provider.seconds = seconds
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    new = folder / f"{PORT_FILE}.new"
    new.write_text(str(server.server_port))
    new.rename(folder / PORT_FILE)
    sys.stdin.read()


def run_customer(times: int) -> None:
    """Ask for the same payment many times at once, after a line on stdin, and wait for every receipt."""
    asyncio.run(_ask(times))


async def _ask(times: int) -> None:
    async with app:  # leaving writes the counts of duplicates, so that `explain` knows all of them
        await app.queues()  # open the database before the others begin
        _report(ready=True)
        if not await asyncio.to_thread(sys.stdin.readline):
            return
        threading.Thread(target=_exit_with_demo, daemon=True).start()
        handles = await asyncio.gather(*(app.enqueue(pay.call(ORDER, CENTS), task_id=KEY) for _ in range(times)))
        _report(asked=times, admitted=sum(not handle.duplicate for handle in handles))
        receipts = await asyncio.gather(*(handle.result(timeout=PATIENCE) for handle in handles))
        _report(receipts=[receipt.charge for receipt in receipts])


def _report(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _exit_with_demo() -> None:
    """The demo holds the other end of stdin until it is over, however it ends."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)
