"""What the records database of a Temporal engine does, broken at one statement in a process of its own.

Prepared undisturbed, then done while one statement breaks. A clean process looks at what is there, does the same
again, as Temporal would with an activity whose worker died, and looks again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from semel.contract.decision import Reason
from semel.contract.lifecycle import Status
from semel.engines.temporal.records import Records, open_records
from semel.engines.temporal.worker_requests import Reservation, Settlement
from semel.errors import EngineUnavailable
from semel.runtime import retries
from semel.testing import Fault, Mode
from tests.faults.forks import Forks, Say
from tests.faults.site import Site

DAY = 86400.0
Step = Callable[[Records, Site], Awaitable[Any]]
Look = Callable[[Site], Awaitable[list[str]]]


@dataclass
class Operation:
    """One thing that is done with records."""

    prepare: Step
    act: Step
    halfway: Look
    """What is wrong after the fault, before it is done again."""
    after: Look
    """What is wrong when it was done again."""


def run(execution: str, key: str, **more: Any) -> Reservation:
    days = timedelta(days=1), timedelta(days=10)
    return Reservation(execution, "task", key, "charge", b"f" * 16, *days, input=b"1", **more)


def end(site: Site, execution: str, status: Status = Status.COMPLETED) -> Settlement:
    return Settlement(execution, status, datetime.fromtimestamp(site.time(), UTC), output=b'"paid"')


async def keys(site: Site) -> list[tuple[Any, ...]]:
    return await site.sql("select key, execution, status, output is not null from semel_record_key order by key")


def differ(what: Any, *allowed: Any) -> list[str]:
    return [] if what in allowed else [f"{what}, and not {' or '.join(map(str, allowed))}"]


async def nothing(records: Records, site: Site) -> None:
    await records.suppressed([])


async def one_failed(records: Records, site: Site) -> None:
    await records.reserve(run("r0", "k"))
    await records.settle(end(site, "r0", Status.FAILED))


async def one_running(records: Records, site: Site) -> None:
    await records.reserve(run("r1", "k"))


async def reserve(records: Records, site: Site) -> None:
    assert (await records.reserve(run("r1", "k"))).id == "r1"


async def settle(records: Records, site: Site) -> None:
    assert await records.settle(end(site, "r1"))


async def reserved(site: Site) -> list[str]:
    return differ(await keys(site), [("k", "r1", "running", False)])


async def free_or_reserved(site: Site) -> list[str]:
    return differ(await keys(site), [], [("k", "r1", "running", False)])


async def failed_or_reserved(site: Site) -> list[str]:
    return differ(await keys(site), [("k", "r0", "failed", True)], [("k", "r1", "running", False)])


async def settled(site: Site) -> list[str]:
    return differ(await keys(site), [("k", "r1", "completed", True)])


async def running_or_settled(site: Site) -> list[str]:
    return differ(await keys(site), [("k", "r1", "running", False)], [("k", "r1", "completed", True)])


# Transactions: the row in the till and the record of it, both or neither.


def pay(tx: Any) -> bytes:
    tx.execute("insert into till (who) values ($1)", "ada")
    return str(tx.execute("select count(*) from till")[0][0]).encode()


def fail_to_pay(tx: Any) -> bytes:
    pay(tx)
    raise ValueError("no")


async def transact(records: Records, site: Site) -> None:
    assert await records.transact("r1", "pay", pay) == b"1"


async def transact_and_raise(records: Records, site: Site) -> None:
    with suppress(ValueError):
        await records.transact("r1", "pay", fail_to_pay)
        raise AssertionError("it did not raise")


async def effects(site: Site) -> tuple[int, int]:
    done = await site.sql("select count(*) from semel_record_transaction where output is not null")
    return (await site.sql("select count(*) from till"))[0][0], done[0][0]


async def both_or_neither(site: Site) -> list[str]:
    return differ(await effects(site), (0, 0), (1, 1))


async def both(site: Site) -> list[str]:
    return differ(await effects(site), (1, 1))


async def neither(site: Site) -> list[str]:
    rows = await site.sql("select count(*) from semel_record_transaction")
    return differ(await effects(site), (0, 0)) + differ(rows[0][0], 0)


# Counts: no decision hangs on them, so a lost reply may count a group twice.


async def flush(records: Records, site: Site) -> None:
    for _ in range(3):
        records.count("r1", Reason.JOINED, datetime.fromtimestamp(site.time(), UTC), timedelta(days=1))
    if await records.suppressed(["r1"]) is None:  # away for a moment: kept, and written with the next
        await records.suppressed(["r1"])


async def counted(site: Site, *allowed: int) -> list[str]:
    rows = await site.sql("select times from semel_record_duplicate where execution = 'r1'")
    return differ(rows[0][0] if rows else 0, *allowed)


async def none_or_all(site: Site) -> list[str]:
    return await counted(site, 0, 3, 6)


async def some(site: Site) -> list[str]:
    return await counted(site, 3, 6, 9)


# Cleaning: of four keys one keeps all, one its key, one nothing, and one has lost its run.


async def all_ages(records: Records, site: Site) -> None:
    await records.reserve(run("old", "k-old"))
    await records.settle(end(site, "old"))
    await records.transact("old", "pay", pay)
    await flush(records, site)
    await site.advance(6 * DAY)
    await records.reserve(run("stripped", "k-stripped"))
    await records.settle(end(site, "stripped"))
    await records.reserve(run("lost", "k-lost"))
    await records.reserve(run("open", "k-open"))
    await records.transact("open", "pay", pay)
    await site.advance(5 * DAY)
    await records.reserve(run("new", "k-new"))
    await records.settle(end(site, "new"))


async def lives(executions: Sequence[str]) -> set[str]:
    return {"open"}


async def clean(records: Records, site: Site) -> None:
    await records.clean(lives)


async def nothing_lost(site: Site) -> list[str]:
    found = {row[0]: row[2:] for row in await keys(site)}
    wrong = differ(found.get("k-open"), ("running", False)) + differ(found.get("k-new"), ("completed", True))
    return wrong + differ(found.get("k-stripped", ("",))[0], "completed")


async def cleaned(site: Site) -> list[str]:
    found = {row[0]: row[2:] for row in await keys(site)}
    wrong = await nothing_lost(site) + differ("k-old" in found, False)
    wrong += differ(found.get("k-stripped"), ("completed", False)) + await counted(site, 0)
    return wrong


OPERATIONS = {
    "reserve": Operation(nothing, reserve, free_or_reserved, reserved),
    "reserve_after_failure": Operation(one_failed, reserve, failed_or_reserved, reserved),
    "settle": Operation(one_running, settle, running_or_settled, settled),
    "transact": Operation(nothing, transact, both_or_neither, both),
    "transact_and_raise": Operation(nothing, transact_and_raise, neither, neither),
    "flush": Operation(nothing, flush, none_or_all, some),
    "clean": Operation(all_ages, clean, nothing_lost, cleaned),
}


async def act(say: Say, *, site: dict[str, Any], operation: str, at: int, mode: str) -> None:
    """In the first process."""
    retries.pause = lambda attempt, most=5.0: 0.001  # type: ignore[assignment]
    here, op = Site(**site), OPERATIONS[operation]
    await here.keep_connection()
    await here.reset()
    records = open_records(here.url, "default", here.time)
    await op.prepare(records, here)
    say({"skew": here.skew})
    assert records._store is not None
    records._store.tap = fault = Fault(at, Mode(mode))
    try:
        await op.act(records, here)
    except EngineUnavailable:
        say({"refused": True})
    say({"fired": fault.fired})


async def finish(say: Say, *, site: dict[str, Any], operation: str) -> None:
    """In a clean one."""
    here, op = Site(**site), OPERATIONS[operation]
    await here.keep_connection()
    records = open_records(here.url, "default", here.time)
    wrong = [f"halfway: {one}" for one in await op.halfway(here)]
    await op.act(records, here)
    wrong += [f"done again: {one}" for one in await op.after(here)]
    await here.advance(40 * DAY)  # what was put off is looked at, and what was lost is found
    await records.clean(lives)
    await here.advance(40 * DAY)
    await records.clean(lives)
    left = [row[1] for row in await keys(here) if row[1] not in ("open", "r1")]
    say(wrong + [f"left behind: {left}"] * bool(left))
    await records.close()


def strike(server: Forks, site: Site, operation: str, at: int, mode: Mode, wrong: list[str]) -> bool:
    """One point. False when the operation ended before the fault could happen."""
    call = {"operation": operation, "at": at, "mode": mode.value}
    code, said = server.run("tests.faults.record_points:act", site=site.plain(), **call)
    told: dict[str, Any] = {}
    for one in said:
        told.update(one)
    where = f"{site.engine} {operation} at statement {at} ({told.get('fired')}), {mode.value}"
    if "failed" in told or code not in (0, -9):
        wrong.append(f"{where}: exit {code}: {told.get('failed')}")
        return at < 3
    if code == 0 and told["fired"] is None:
        return False
    left = site.plain() | {"skew": told["skew"]}
    code, said = server.run("tests.faults.record_points:finish", site=left, operation=operation)
    if code != 0 or said[-1]:
        wrong.append(f"{where}: the clean process ended with {code}: {said[-1]}")
    return True


def sweep(
    server: Forks, site: Site, operation: str, modes: Iterable[Mode], points: Counter[str], wrong: list[str]
) -> None:
    """Raise n until the operation ends clean, in every mode."""
    for mode in modes:
        at = 1
        while strike(server, site, operation, at, mode, wrong):
            points[operation] += 1
            at += 1
