"""Programs that nobody wrote, on a cluster in trouble: what comes of them is compared with what they say.

Workers with small memories take turns with workflows and entities, and are killed, frozen and stopped; signals and
messages come twice; statements fail before and after they were executed. Time is made up, as in `simulation.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import semel
from semel.codec import encode
from semel.engine.requests import workflow_request
from semel.flow import entries
from semel.flow.entries import Asked, Resolved
from tests.faults.programs import Author, Performer, compare, expected, published
from tests.faults.simulation import MadeUpTime, Process, World, quietly, story

WATCH = """
create table till (who text not null);
create table heard (n integer primary key, execution text, name text, ref text, body blob);
create trigger heard_it after insert on semel_inbox when new.kind = 'signal'
begin insert into heard (execution, name, ref, body) values (new.execution, new.name, new.ref, new.body); end;
create table parked (execution text, why blob);
create trigger parked_it after update of parked on semel_flow when new.parked is not null
begin insert into parked values (new.execution, new.parked); end;
"""
LIVING = "select f.execution, x.kind from semel_flow f join semel_execution x on x.id = f.execution"


class FlowWorld(World):
    """A world in which programs run."""

    def __init__(self, loop: MadeUpTime, seed: int) -> None:
        super().__init__(loop, seed)
        self.author = Author(self.dice)
        self.performer.programs = self.author.programs
        self.flows: dict[str, str] = {}
        """Executions by workflow id."""
        self.stopped: set[str] = set()
        self.sums: Counter[str] = Counter()
        self.sent: list[tuple[str, str, int, str]] = []
        self.again: list[str] = []
        self.steps: Counter[str] = Counter()

    def _define(self) -> None:
        async def touch(name: str) -> str:
            here = semel.current()
            if here.kind == "step":
                self.steps[name] += 1
                self._not_again(here.id, name, here.token)
                await asyncio.sleep(self.dice.choice([0, 0, 0.1, 5.0]))
            else:
                await asyncio.sleep(self.dice.choice([0, 0.1, 3.0]))
                self.effects.append((here.id, here.token, here.attempt))
            return name

        self.performer = performer = Performer(self.app, touch)

        @self.app.entity
        @dataclass
        class Account:
            total: int = 0

            @semel.handler
            async def add(self, ctx: semel.EntityContext, cents: int) -> None:
                self.total += cents

            @semel.handler
            async def earn(self, ctx: semel.EntityContext, cents: int) -> None:
                before = self.total
                await ctx.execute_task(performer.work, "earn", 0)
                await ctx.step(touch, f"earn-{ctx.uuid4().hex}", name="earn")
                self.total = before + cents

            @semel.handler
            async def close(self, ctx: semel.EntityContext, cents: int) -> None:
                ctx.publish("total", self.total)
                ctx.end()

        self.account = Account

    def _not_again(self, execution: str, name: str, token: int) -> None:
        """A step whose result is in the journal does not run again; only who slept through his lease may not know."""
        rows = [body for body, written_by in self.rows(_JOURNAL.format(execution)) if written_by <= token]
        deeds = [deed for body in rows for deed in entries.load(bytes(body))]
        asked = {deed.command for deed in deeds if isinstance(deed, Asked) and deed.name == name}
        if any(isinstance(deed, Resolved) and deed.command in asked for deed in deeds):
            self.again.append(f"I2: step {name} of {execution} was recorded, and ran again")


_JOURNAL = "select body, token from semel_journal where execution = '{}' order by n"


class Client:
    """Who starts, signals, sends and cancels."""

    def __init__(self, world: FlowWorld) -> None:
        self.world = world
        self.process = Process(world)
        self._payloads = iter(range(1, 1_000_000))

    async def start(self) -> None:
        """A new workflow, until it is in."""
        world = self.world
        key = world.author.workflow()
        ops = world.author.programs[key]
        request = workflow_request(
            world.app.settings, world.performer.program, (ops, []), {}, workflow_id=key, on_duplicate="return"
        )
        admission = await self._surely(lambda: self.process.engine.start(request))
        world.flows[key] = admission.id

    async def signal(self, id_: str, name: str, key: str | None) -> None:
        """With a key until it has arrived, and once more now and then; without one, once."""
        payload = encode(next(self._payloads), "payload", plain=True)

        def send() -> Any:
            return self.process.engine.signal(id_, name, payload, key)

        if key is None:
            await send()
            return
        await self._surely(send)
        if self.world.dice.random() < 0.5:
            await self._surely(send)

    async def message(self, who: str, handler: str, cents: int, key: str) -> None:
        """Until it has arrived."""
        ref = self.world.app.entity(self.world.account, who)
        await self._surely(lambda: self.process.engine.send(ref._message(handler, (cents,), {}, key)))

    async def _surely(self, call: Any) -> Any:
        while True:
            try:
                return await call()
            except semel.EngineUnavailable:
                await asyncio.sleep(1)


async def chaos(world: FlowWorld, events: int) -> None:
    """One event after the other; at the end nobody is left but the client."""
    dice, client = world.dice, Client(world)
    await client.process.engine.open()
    world.scribe._db.execute_script(WATCH)
    world.faults = dice.choice([0.0, 0.0, 0.01, 0.05])
    for at in range(events):
        await asyncio.sleep(dice.choice([0.01, 0.1, 1.0, 5.0]))
        workers = [p for p in world.processes if p.worker is not None]
        match dice.choices(range(9), [5, 8, 6, 4, 2, 1, 1, 1, 1])[0]:
            case 0 if len(world.flows) < 6:
                client.process.spawn(client.start())
            case 1 if world.flows:
                key = dice.choice([None, f"k-{dice.randint(1, 9)}"])
                id_ = world.flows[dice.choice(sorted(world.flows))]
                client.process.spawn(quietly(client.signal(id_, dice.choice("xy"), key)))
            case 2:
                client.process.spawn(client.message(*_message(world, at)))
            case 3 if len(workers) < 3:
                process = Process(world)
                process.spawn(quietly(process.serve(dice.choice([0, 0, 1, 2, 1000]))))
            case 4 if workers:
                dice.choice(workers).kill()
            case 5 if workers:
                world.loop.create_task(dice.choice(workers).freeze(dice.choice([1.0, 15.0, 60.0])))
            case 6:
                world.skew += dice.choice([60.0, 3600.0, -5.0])
            case 7 if world.flows:
                _stop(world, client)
            case 8 if workers:
                process = dice.choice(workers)
                process.spawn(quietly(process.worker.stop()))
            case _:
                pass
    world.faults = 0.0
    await asyncio.sleep(30)
    for process in list(world.processes):
        process.kill()


def _message(world: FlowWorld, at: int) -> tuple[str, str, int, str]:
    """A new one, or one that was sent before."""
    dice = world.dice
    if world.sent and dice.random() < 0.3:
        return dice.choice(world.sent)
    message = (f"a-{dice.randint(1, 2)}", dice.choice(["add", "earn"]), dice.randint(1, 99), f"m-{at}")
    world.sent.append(message)
    world.sums[message[0]] += message[2]
    return message


def _stop(world: FlowWorld, client: Client) -> None:
    key = world.dice.choice(sorted(world.flows))
    world.stopped.add(key)
    engine = client.process.engine
    if world.dice.random() < 0.7:
        client.process.spawn(quietly(engine.cancel(world.flows[key])))
    else:
        client.process.spawn(quietly(engine.terminate(world.flows[key], "enough")))


async def finish(world: FlowWorld) -> None:
    """A clean worker, and a signal for whoever waits for one; then the entities are closed."""
    client = Client(world)
    process = Process(world)
    world.skew += 60.0
    await process.serve(lease=3600.0)
    for round_ in range(2000):
        living = world.rows(LIVING)
        workflows = [id_ for id_, kind in living if kind == "workflow"]
        if not workflows and world.rows("select count(*) from semel_ready") == [(0,)]:
            break
        await asyncio.sleep(60)
        if round_ % 5 == 4:
            for id_ in workflows:
                await client.signal(id_, "x", None)
                await client.signal(id_, "y", None)
    for who in sorted(world.sums):
        await client.message(who, "close", 0, "close")
    await asyncio.sleep(300)
    await process.worker.stop()
    await process.engine.close()


def wrong(world: FlowWorld) -> list[str]:
    """What does not hold, in words."""
    found = list(world.again)
    rows = world.rows("select id, kind, key, status, output from semel_execution")
    found += [f"I1: {key or id_} is {status}" for id_, _, key, status, _ in rows if status in ("pending", "running")]
    known = {id_ for id_, *_ in rows}
    found += [f"I1: {key} was accepted and is gone" for key, id_ in world.flows.items() if id_ not in known]
    for table in ("semel_ready", "semel_later", "semel_worker", "semel_flow", "semel_inbox"):
        found += [f"I6: {table} holds {row}" for row in world.rows(f"select * from {table}")]
    found += [f"I7: {id_} was parked: {bytes(why).decode()}" for id_, why in world.rows("select * from parked")]
    claims = Counter((id_, token) for id_, token, _ in world.effects)
    found += [f"I2: claim {claim} had its effect {times} times" for claim, times in claims.items() if times > 1]
    paid = Counter(who for (who,) in world.rows("select who from till"))
    found += [f"I2: {who} was paid {times} times" for who, times in paid.items() if times > 1]
    for id_, kind, key, status, output in rows:
        if kind == "workflow":
            found += [f"{key}: {what}" for what in _ended(world, id_, key, status, output, paid)]
    return found + _sums(world)


def _ended(world: FlowWorld, id_: str, key: str, status: str, output: bytes | None, paid: Counter[str]) -> list[str]:
    ops = world.author.programs[key]
    ends, values = expected(ops, world.author.programs)
    if status == "cancelled" and world.stopped:
        return []
    if status != ends:
        return [f"I1: ended {status}, and was to end {ends}"]
    if status != "completed":
        return []
    found, got = [], {"x": [], "y": []}
    for one in compare(values, json.loads(bytes(output or b"null"))):
        if isinstance(one, str):
            found.append(f"I2: {one}")
        else:
            got[one[0]].append(one[1])
    for name, taken in got.items():
        heard = _heard(world, id_, name)
        if taken != heard[: len(taken)]:
            found.append(f"I2: signals {name} came as {heard}, and were taken as {taken}")
    rows = world.rows(f"select name, body from semel_published where execution = '{id_}'")
    if (told := {name: json.loads(bytes(body)) for name, body in rows}) != published(ops):
        found.append(f"I2: published {told} instead of {published(ops)}")
    flat = json.dumps(ops)
    found += [f"I1: {who} was to be paid" for who in _names(ops, "pay") if paid[who] != 1]
    found += [f"I1: step {name} did not run: {flat}" for name in _names(ops, "step") if not world.steps[name]]
    return found


def _heard(world: FlowWorld, id_: str, name: str) -> list[Any]:
    rows = world.rows(f"select ref, body from heard where execution = '{id_}' order by n")
    names = [one for (one,) in world.rows(f"select name from heard where execution = '{id_}' order by n")]
    seen, heard = set(), []
    for one, (ref, body) in zip(names, rows, strict=True):
        if ref is None or ref not in seen:
            seen.add(ref)
            if one == name:
                heard.append(json.loads(bytes(body)))
    return heard


def _names(ops: list[Any], kind: str) -> list[str]:
    names = []
    for op in ops:
        if op[0] == kind:
            names.append(op[1])
        elif op[0] in ("gather", "again"):
            names += _names(op[1], kind)
    return names


def _sums(world: FlowWorld) -> list[str]:
    found = []
    for who, total in world.sums.items():
        rows = world.rows(
            "select p.body from semel_published p join semel_execution x on x.id = p.execution "
            f"where x.key = 'Account/{who}' and p.name = 'total'"
        )
        if [int(bytes(body)) for (body,) in rows] != [total]:
            found.append(f"I2: messages to {who} make {total}, and it has {rows}")
    return found


def simulate_flows(seed: int, events: int) -> tuple[list[str], int]:
    """One story: what was wrong at its end, and how many steps and tasks ran in it."""
    with story(seed, FlowWorld) as world:
        world.loop.run_until_complete(chaos(world, events))
        world.loop.run_until_complete(finish(world))
        return wrong(world), len(world.effects) + world.steps.total()
