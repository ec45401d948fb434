"""A schedule that a worker cannot look at, as one of a newer release, holds up no other; nothing of it is lost."""

from __future__ import annotations

import pytest

from tests.faults.schedule_invariants import run_faults, slot_faults
from tests.faults.schedule_shop import HOUR, ScheduleShop, grid_of
from tests.faults.site import Site


async def test_a_schedule_of_a_newer_release_holds_up_no_other(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async with ScheduleShop(site) as shop:
        begin = shop.begin
        for id_ in ("a", "b", "c"):
            await shop.put(id_, shop.count, begin=begin)
        schedules = await shop.schedules()
        await schedules.tick()
        ((known,),) = await site.sql("select definition from semel_schedule where id = 'b'")
        await _define(site, "b", bytes(known).replace(b"{", b'{"moon":"full",', 1))
        await site.advance(HOUR + 1)
        await schedules.tick()
        assert "schedule b could not be looked at" in caplog.text
        assert sorted(await site.sql("select schedule from semel_run")) == [("a",), ("c",)]
        assert await schedules.tick() == 0, "it is put off"
        await _define(site, "b", bytes(known))
        await site.advance(11)
        await schedules.tick()
        assert sorted(await site.sql("select schedule from semel_run")) == [("a",), ("b",), ("c",)]
        assert await slot_faults(site.sql, "b", grid_of(begin), ended=False) == []
        assert await run_faults(site.sql) == []


async def _define(site: Site, id: str, definition: bytes) -> None:
    write = "decode('{}', 'hex')" if site.engine == "postgres" else "x'{}'"
    await site.script(f"update semel_schedule set definition = {write.format(definition.hex())} where id = '{id}'")
