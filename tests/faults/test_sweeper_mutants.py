"""Take away one guard of sweepers at a time: a named check must notice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import semel
from semel import Stuck, Sweep, sweepers
from semel.define.sweeper import Sweeper
from semel.engine.protocol import Admission, EngineVerbs
from semel.engine.start_request import StartRequest
from semel.runtime.stuck_rows import _SyncRows
from tests.faults.shop import Shop
from tests.faults.site import Site
from tests.faults.test_mutants import prepare

pytestmark = pytest.mark.proof
Check = Callable[[Shop], Awaitable[None]]


async def what_completed_is_not_started_again(shop: Shop) -> None:
    @shop.app.sweeper("stuck")
    def stuck(sweep: Sweep) -> list[Stuck]:
        return [Stuck("o-1", shop.charge, "o-1")]

    await shop.app.sweep("stuck")
    await shop.run_all()
    assert (await shop.app.sweep("stuck")).completed == 1
    await shop.run_all()
    assert max(shop.ledger.times().values()) == 1


async def a_bad_row_harms_no_other(shop: Shop) -> None:
    @shop.app.sweeper("stuck")
    def stuck(sweep: Sweep) -> list[Any]:
        return [Stuck("", shop.charge, "o-0"), "what", Stuck("o-1", shop.charge, "o-1")]

    report = await shop.app.sweep("stuck")
    assert (report.started, report.error) == (1, 2)


async def one_that_the_engine_refuses_harms_no_other(shop: Shop) -> None:
    @shop.app.sweeper("stuck")
    def stuck(sweep: Sweep) -> list[Any]:
        return [Stuck(f"o-{number}", shop.charge, f"o-{number}") for number in range(3)]

    engine = shop.engine
    start, start_many = engine.start, engine.start_many

    async def refuse_one(request: StartRequest) -> Admission:
        if request.key == "o-1":
            raise semel.InvalidValue("not this one.")
        return await start(request)

    async def refuse_all(requests: Sequence[StartRequest]) -> list[Admission]:
        if any(one.key == "o-1" for one in requests):
            raise semel.InvalidValue("not with this one.")
        return await start_many(requests)

    engine.start, engine.start_many = refuse_one, refuse_all  # type: ignore[method-assign, assignment]
    report = await shop.app.sweep("stuck")
    assert (report.started, report.error) == (2, 1)


async def a_run_is_bounded(shop: Shop) -> None:
    @shop.app.sweeper("stuck", limit=5)
    def stuck(sweep: Sweep) -> Any:
        for number in range(1000):
            yield Stuck(f"o-{number}", shop.charge, f"o-{number}")

    assert (await shop.app.sweep("stuck")).started == 5


async def a_run_looks_at_so_many_rows(shop: Shop) -> None:
    @shop.app.sweeper("stuck", limit=5)
    def stuck(sweep: Sweep) -> Any:
        for _ in range(10_000):
            yield Stuck("o-1", shop.charge, "o-1")

    assert (await shop.app.sweep("stuck")).stuck <= 50


async def the_recent_is_ignored(shop: Shop) -> None:
    @shop.app.sweeper("stuck", older_than="5m")
    def stuck(sweep: Sweep) -> list[Stuck]:
        minute = timedelta(minutes=1)
        return [Stuck("o-1", shop.charge, "o-1", since=sweep.before + at * minute) for at in (0, 1)]

    report = await shop.app.sweep("stuck")
    assert (report.started, report.recent) == (0, 2)


async def the_cut_is_older_than(shop: Shop) -> None:
    cuts = []

    @shop.app.sweeper("stuck", older_than="5m")
    def stuck(sweep: Sweep) -> None:
        cuts.append(shop.site.time() - sweep.before.timestamp())

    await shop.app.sweep("stuck")
    assert 299 < cuts[0] < 330


async def what_came_before_an_error_is_started(shop: Shop) -> None:
    @shop.app.sweeper("stuck")
    def stuck(sweep: Sweep) -> Any:
        yield Stuck("o-1", shop.charge, "o-1")
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        await shop.app.sweep("stuck")
    assert await shop.app.find("o-1") is not None


async def a_dry_run_starts_nothing(shop: Shop) -> None:
    @shop.app.sweeper("stuck")
    def stuck(sweep: Sweep) -> list[Stuck]:
        return [Stuck("o-1", shop.charge, "o-1")]

    assert (await shop.app.sweep("stuck", dry_run=True)).started == 1
    assert await shop.app.find("o-1") is None


async def start_together(verbs: EngineVerbs, starts: Sequence[StartRequest]) -> Sequence[Admission]:
    """All or none."""
    return await verbs.start_many(starts)


def make_always(self: Sweeper, name: str, function: Any, options: Any) -> None:
    original(self, name, function, options)
    self.reuse = "always"


def make_hasty(self: Sweeper, name: str, function: Any, options: Any) -> None:
    original(self, name, function, options)
    self.older_than = timedelta(0)


original = Sweeper.__init__


def take_all(self: _SyncRows, most: int) -> Any:
    """Without a thought for what came before an error."""
    if self._rows is None:
        self._rows = iter(self._function(self._sweep))
    return list(self._rows)[:most], None


async def wet(self: Any, start: StartRequest) -> Any:
    """A dry run that starts."""
    answer = await self._app.engine.start(start)
    return await self._judge(self._app.engine, start, answer)


def request_anything(row: Any, error: Exception) -> Any:
    """A row that no start can be made of is the end."""
    raise error


NO_LIMIT = property(lambda self: 10**6, lambda self, value: None)
MUTANTS: dict[str, tuple[Check, Any, str, Any]] = {
    "reuse: failed_only": (what_completed_is_not_started_again, Sweeper, "__init__", make_always),
    "_unusable: what no start can be made of": (a_bad_row_harms_no_other, sweepers, "_unusable", request_anything),
    "_start_each: one by one": (one_that_the_engine_refuses_harms_no_other, sweepers, "_start_each", start_together),
    "go_through: the limit of starts": (a_run_is_bounded, Sweeper, "limit", NO_LIMIT),
    "go_through: the limit of rows": (a_run_looks_at_so_many_rows, sweepers, "LOOKED_AT", 10**6),
    "_is_recent": (the_recent_is_ignored, sweepers._Run, "_is_recent", lambda self, row: False),
    "older_than": (the_cut_is_older_than, Sweeper, "__init__", make_hasty),
    "take: what came before an error": (what_came_before_an_error_is_started, _SyncRows, "_take", take_all),
    "_foretell: a dry run": (a_dry_run_starts_nothing, sweepers._Run, "_foretell", wet),
}  # fmt: skip


async def passes(site: Site, check: Check) -> None:
    await site.reset()
    async with Shop(site) as shop:
        await check(shop)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_missing_guard_of_sweepers_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = prepare(tmp_path)
    check, owner, guard, instead = MUTANTS[name]
    asyncio.run(passes(site, check))
    monkeypatch.setattr(owner, guard, instead, raising=guard != "limit")
    with pytest.raises((AssertionError, semel.SemelError, ValueError)):
        asyncio.run(passes(site, check))
