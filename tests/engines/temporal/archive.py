"""Records on the database of a test, and what runs say of themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from semel.contract.durations import parse_duration
from semel.contract.lifecycle import Status
from semel.engines.journal.script import ConnectionRole
from semel.engines.temporal.records import Records, open_records
from semel.engines.temporal.worker_requests import Reservation, Settlement
from semel.errors import EngineUnavailable
from tests.world import World

WEEK = timedelta(days=7)


@asynccontextmanager
async def opened(world: World, namespace: str = "default") -> AsyncIterator[Records]:
    """Records as one process has them."""
    records = open_records(world.url, namespace, world.time)
    try:
        yield records
    finally:
        await records.close()


def run(execution: str, key: str = "k", retention: str = "7d", window: str = "90d", **more: Any) -> Reservation:
    """A run that takes a key."""
    more = {"kind": "task", "name": "charge", "fingerprint": b"f" * 16, **more}
    return Reservation(execution, key=key, retention=parse_duration(retention), window=parse_duration(window), **more)


def end(world: World, execution: str, status: Status = Status.COMPLETED, **more: Any) -> Settlement:
    """A run that has ended now."""
    return Settlement(execution, status, world.now(), **more)


class Away:
    """A tap that lets no statement through while `away` is set."""

    def __init__(self, away: bool = True) -> None:
        self.away = away

    def before(self, statement: str) -> None:
        if self.away:
            raise EngineUnavailable("the database is away.")

    def after(self, statement: str) -> None:
        return


def tapped(records: Records, tap: Any) -> None:
    """Put a tap at the seam through which its SQL goes. What only reads goes through it as well, also on SQLite."""
    store: Any = records._store
    store.tap = tap
    if store.dialect == "sqlite":
        of_line = store._for
        store._for = lambda line: of_line(ConnectionRole.CONTROL)
