"""Every verb of the API and of the command line, with arguments: for tests that want to call each of them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import typer

import semel
from semel.backfills import Backfills
from semel.cli import cli
from semel.entity_ref import Ref
from semel.events import Events
from semel.outbox import Outbox
from semel.schedules import Schedules

FACES: tuple[type[Any], ...] = (semel.App, semel.Handle, Ref, Schedules, Backfills, Events, Outbox)
SINCE, UNTIL = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)
SHOP = """
import semel
from datetime import timedelta
app = semel.App({url!r}, config={config!r}, records={records!r}, outbox={outbox!r}, auto_migrate=True)

@app.on_schedule("0 9 * * *", id="daily")
@app.task(name="charge")
async def charge(cents: int = 1) -> int:
    return cents

@app.workflow(name="order")
async def order(ctx: semel.Context) -> None:
    await ctx.wait_signal("go")

@app.entity(name="account")
class Account:
    cents: int = 0

    @semel.handler
    async def add(self, ctx: semel.EntityContext, cents: int) -> int:
        return cents

    @semel.query
    def balance(self) -> int:
        return self.cents

@app.sweeper("stuck", every="15m", older_than="5m")
def stuck(sweep: semel.Sweep):
    yield semel.Stuck("o-9", order)
"""


def public_verbs() -> set[str]:
    """Everything that can be awaited on what people get from an app, such as "App.enqueue"."""
    return {f"{face.__name__}.{name}" for face in FACES for name in dir(face) if _waits(face, name)}


def _waits(face: type[Any], name: str) -> bool:
    member = getattr(face, name, None)
    wraps = inspect.unwrap(member) if callable(member) else member
    return not name.startswith("_") and (inspect.iscoroutinefunction(wraps) or inspect.isasyncgenfunction(wraps))


def public_commands() -> set[str]:
    """Every command, such as "workflows show"."""
    return set(_commands(typer.main.get_command(cli), ()))


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))
    if path and not hasattr(command, "commands"):
        yield " ".join(path)


class Shop:
    """An app whose calls wait for so many seconds at most."""

    def __init__(self, url: str, folder: Path, *, bound: float, records: str | None = None) -> None:
        """Its outbox is in the database of the engine; of a cluster, in that of its records."""
        self.folder = folder
        self.config = folder / f"bound-{bound:g}.toml"
        self.config.write_text(f'call_timeout = "{bound:g}s"\n', encoding="utf-8")
        self.source = SHOP.format(url=url, config=str(self.config), records=records, outbox=records or url)
        space: dict[str, Any] = {}
        exec(compile(self.source, "shop", "exec", dont_inherit=True), space)
        self.app: semel.App = space["app"]
        self.charge, self.order, self._account = space["charge"], space["order"], space["Account"]
        self.account: Ref[Any] = self.app.entity(self._account, "a-1")
        self.add, self.balance = self._account.add, self._account.balance

    async def stock(self) -> str:
        """What the verbs are about: a workflow (its id), and where there is a place for it a schedule."""
        known = await self.app.start_workflow(self.order, workflow_id="o-0")
        await self.app.schedules.put("nightly", self.charge.call(1), every=timedelta(days=1))
        await self.app.outbox.init()
        return known.id

    def calls(self, execution: str) -> dict[str, Callable[[], Awaitable[Any]]]:
        """Each verb of the API, once."""
        app, charge, account = self.app, self.charge, self.account
        one: semel.Handle[Any] = semel.Handle(app, execution, "order", "o-0", duplicate=False)
        event = semel.EventEnvelope(event_id="evt-1", source="/shop", type="invoice.paid", data={"cents": 1})
        schedules, backfills, events, outbox = app.schedules, app.schedules.backfills, app.events, app.outbox
        return {
            "App.apply": lambda: app.apply(),
            "App.clean": lambda: app.clean(),
            "App.doctor": lambda: app.doctor(),
            "App.enqueue": lambda: app.enqueue(charge, 1, task_id="k"),
            "App.enqueue_many": lambda: app.enqueue_many([charge.call(1), charge.call(2)]),
            "App.explain": lambda: app.explain("k"),
            "App.failed_messages": lambda: app.failed_messages(),
            "App.find": lambda: app.find("k"),
            "App.get": lambda: app.get(execution),
            "App.list": lambda: app.list(),
            "App.migrate": lambda: app.migrate(),
            "App.publish": lambda: app.publish(event),
            "App.publish_many": lambda: app.publish_many([event]),
            "App.queues": lambda: app.queues(),
            "App.redrive": lambda: app.redrive(execution),
            "App.redrive_messages": lambda: app.redrive_messages("account/a-1"),
            "App.replay": lambda: app.replay(),
            "App.start_workflow": lambda: app.start_workflow(self.order, workflow_id="o-1"),
            "App.sweep": lambda: app.sweep("stuck"),
            "App.unserved": lambda: app.unserved(),
            "App.workers": lambda: app.workers(),
            "Handle.attributes": one.attributes,
            "Handle.cancel": one.cancel,
            "Handle.describe": one.describe,
            "Handle.export": one.export,
            "Handle.history": one.history,
            "Handle.input": one.input,
            "Handle.output": one.output,
            "Handle.published": lambda: one.published("x"),
            "Handle.reset": lambda: one.reset("row:0"),
            "Handle.result": one.result,
            "Handle.signal": lambda: one.signal("go"),
            "Handle.state": one.state,
            "Handle.status": one.status,
            "Handle.terminate": one.terminate,
            "Ref.ask": lambda: account.ask(self.add, 1),
            "Ref.failed": account.failed,
            "Ref.query": lambda: account.query(self.balance),
            "Ref.redrive": account.redrive,
            "Ref.send": lambda: account.send(self.add, 1),
            "Ref.state": account.state,
            "Schedules.apply": lambda: schedules.apply(prune=False, take_over=False, dry_run=False),
            "Schedules.backfill": lambda: schedules.backfill("nightly", start=SINCE, end=UNTIL),
            "Schedules.delete": lambda: schedules.delete("other"),
            "Schedules.edit": lambda: schedules.edit("nightly", every=timedelta(days=2)),
            "Schedules.explain_run": lambda: schedules.explain_run("activity-nightly:2026-03-01T00:00:00+00:00", SINCE),
            "Schedules.get": lambda: schedules.get("nightly"),
            "Schedules.list": schedules.list,
            "Schedules.next": lambda: schedules.next("nightly"),
            "Schedules.pause": lambda: schedules.pause("nightly"),
            "Schedules.put": lambda: schedules.put("weekly", charge.call(1), every=timedelta(days=7)),
            "Schedules.reconcile": schedules.reconcile,
            "Schedules.resume": lambda: schedules.resume("nightly"),
            "Schedules.runs": lambda: schedules.runs("nightly"),
            "Schedules.skipped": lambda: schedules.skipped("nightly"),
            "Schedules.trigger": lambda: schedules.trigger("nightly"),
            "Schedules.unapplied": schedules.unapplied,
            "Schedules.warn_unapplied": schedules.warn_unapplied,
            "Backfills.cancel": lambda: backfills.cancel("b-1"),
            "Backfills.get": lambda: backfills.get("b-1"),
            "Backfills.list": backfills.list,
            "Backfills.pause": lambda: backfills.pause("b-1"),
            "Backfills.resume": lambda: backfills.resume("b-1"),
            "Backfills.wait": lambda: backfills.wait("b-1"),
            "Events.backfill": lambda: events.backfill("bill"),
            "Events.definition": lambda: events.definition("bill"),
            "Events.explain_run": lambda: events.explain_run("activity-bill:evt-1"),
            "Events.get": lambda: events.get("evt-1"),
            "Events.list": events.list,
            "Events.pause": lambda: events.pause("bill"),
            "Events.publish": lambda: events.publish(event),
            "Events.publish_many": lambda: events.publish_many([event]),
            "Events.replay": lambda: events.replay("evt-1"),
            "Events.resume": lambda: events.resume("bill"),
            "Events.subscriptions": events.subscriptions,
            "Outbox.doctor": outbox.doctor,
            "Outbox.get": lambda: outbox.get(1),
            "Outbox.init": outbox.init,
            "Outbox.list": outbox.list,
            "Outbox.purge": lambda: outbox.purge("processed"),
            "Outbox.redrive": lambda: outbox.redrive(1),
            "Outbox.redrive_failed": outbox.redrive_failed,
            "Outbox.redrive_processed": lambda: outbox.redrive_processed(SINCE),
            "Outbox.find_start": lambda: outbox.find_start("k"),
            "Outbox.state": outbox.state,
        }

    def commands(self, target: str) -> dict[str, list[str]]:
        """The arguments of each command that reaches the database or the cluster."""
        times = ["--from", SINCE.isoformat(), "--to", UNTIL.isoformat()]
        return {
            "migrate": [],
            "enqueue": [target, "charge", "[1]", "--task-id", "k"],
            "apply": [target, "--yes"],
            "publish": ["invoice.paid", '{"cents": 1}', "--id", "evt-1"],
            "list": [],
            "show": ["0198"],
            "explain": ["k"],
            "queues": [],
            "workers": [],
            "doctor": [],
            "reconcile": [target],
            "cancel": ["0198"],
            "redrive": ["0198"],
            "clean": [],
            "replay": [target],
            "workflows list": [],
            "workflows show": ["o-0"],
            "workflows graph": ["o-0"],
            "workflows signal": ["o-0", "go"],
            "workflows cancel": ["o-0"],
            "workflows terminate": ["o-0"],
            "workflows reset": ["o-0", "--to", "row:0"],
            "workflows export": ["o-0"],
            "schedules list": [],
            "schedules show": ["nightly"],
            "schedules next": ["nightly"],
            "schedules create": [target, "hourly", "charge", "[1]", "--every", "1h"],
            "schedules edit": ["nightly", "--every", "2h"],
            "schedules pause": ["nightly"],
            "schedules resume": ["nightly"],
            "schedules trigger": ["nightly"],
            "schedules backfill": ["nightly", *times, "--yes"],
            "schedules delete": ["nightly"],
            "backfills list": [],
            "backfills show": ["b-1"],
            "backfills pause": ["b-1"],
            "backfills resume": ["b-1"],
            "backfills cancel": ["b-1"],
            "events list": [],
            "events show": ["evt-1"],
            "events replay": ["evt-1"],
            "events backfill": ["bill"],
            "events subscriptions": [],
            "events pause": ["bill"],
            "events resume": ["bill"],
            "sweep": ["stuck", target],
            "entities failed": [],
            "entities redrive": ["account/a-1"],
            "outbox init": [],
            "outbox list": [],
            "outbox show": ["1"],
            "outbox redrive": ["1"],
            "outbox purge": [],
        }
