"""Workflows that nobody wrote: programs made of dice, one workflow that does what they say, and what must come of them.

A program is plain data, a list of operations, so that it is the input of the workflow and of the oracle alike.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import semel

Op = list[Any]
Program = list[Op]
FAILED = "failed"
TIMED_OUT = "timed out"


class Author:
    """Writes programs. Every name in them is used once, children included."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._numbers = iter(range(1, 1_000_000))
        self.programs: dict[str, Program] = {}
        """By workflow id."""

    def workflow(self, depth: int = 0) -> str:
        """A new program; the id to start it under."""
        key = f"w-{next(self._numbers)}"
        self.programs[key] = self._ops(key, depth, self._dice.randint(1, 6 - 2 * depth))
        return key

    def _ops(self, key: str, depth: int, many: int) -> Program:
        ops = [self._op(depth) for _ in range(many)]
        if depth == 0 and self._dice.random() < 0.3:
            ops.append(["again", self._ops(key, 1, self._dice.randint(1, 3))])
        elif self._dice.random() < 0.1:
            ops.append(["fail"])
        return ops

    def _op(self, depth: int, leaf: bool = False) -> Op:
        dice, name = self._dice, f"o-{next(self._numbers)}"
        kinds = ["step", "step", "task", "task", "doomed", "sleep", "wait", "wait", "publish", "pay", "child", "gather"]
        match dice.choice(kinds[:-2] if leaf or depth > 1 else kinds):
            case "task":
                return ["task", name, dice.choice([0, 0, 0, 1, 2])]
            case "sleep":
                return ["sleep", dice.choice([0.01, 1.0, 30.0, 600.0])]
            case "wait":
                return ["wait", dice.choice("xy"), dice.choice([None, 0.5, 20.0, 900.0])]
            case "child":
                return ["child", self.workflow(depth + 1)]
            case "gather":
                return ["gather", [self._op(depth, leaf=True) for _ in range(dice.randint(2, 4))]]
            case "publish":
                return ["publish", dice.choice("pq"), name]
            case kind:
                return [kind, name]


def expected(ops: Program, programs: dict[str, Program]) -> tuple[str, list[Any]]:
    """How it ends, and with what; a wait is expected as itself, since either thing may happen."""
    values: list[Any] = []
    for op in ops:
        match op:
            case ["fail"]:
                return FAILED, values
            case ["again", rest]:
                ended, more = expected(rest, programs)
                return ended, values + more
            case _:
                values.append(_value(op, programs))
    return "completed", values


def _value(op: Op, programs: dict[str, Program]) -> Any:
    match op:
        case ["step" | "task" | "pay", name, *_]:
            return name
        case ["doomed", _]:
            return FAILED
        case ["wait", *_]:
            return op
        case ["child", key]:
            ended, values = expected(programs[key], programs)
            return _of_another(values) if ended == "completed" else FAILED
        case ["gather", ops]:
            return [_value(one, programs) for one in ops]
        case _:
            return None


def _of_another(value: Any) -> Any:
    """Its waits are for its own signals."""
    match value:
        case ["wait", *_]:
            return ["anything"]
        case list():
            return [_of_another(one) for one in value]
        case _:
            return value


def published(ops: Program) -> dict[str, str]:
    """The last value under each name, where nothing is published at the same time."""
    last: dict[str, str] = {}
    for op in ops:
        match op:
            case ["publish", name, value]:
                last[name] = value
            case ["gather", some]:
                last |= published(some)
            case ["again", rest]:
                last |= published(rest)
    return last


def compare(want: Any, got: Any) -> Iterator[tuple[str, Any] | str]:
    """What differs, in words; and each wait with what it gave."""
    match want:
        case ["anything"]:
            pass
        case ["wait", name, timeout]:
            if got == TIMED_OUT and timeout is None:
                yield f"a wait without end for {name} timed out"
            elif got != TIMED_OUT:
                yield name, got
        case list() if isinstance(got, list) and len(want) == len(got):
            for one, other in zip(want, got, strict=True):
                yield from compare(one, other)
        case _ if want != got:
            yield f"{got!r} instead of {want!r}"


class Performer:
    """Does what programs say, as a workflow."""

    def __init__(self, app: semel.App, touch: Callable[[str], Awaitable[str]]) -> None:
        self._touch = touch

        @app.task(retry=semel.Retry(max_attempts=50, initial="1s"))
        async def work(name: str, failures: int) -> str:
            if semel.current().attempt <= failures:
                raise ValueError("not yet")
            return await touch(name)

        @app.task(retry=1)
        async def doomed(name: str) -> str:
            raise ValueError(name)

        @app.workflow
        async def program(ctx: semel.Context, ops: list[Any], done: list[Any]) -> list[Any]:
            try:
                return await self._run(ctx, ops, done)
            except asyncio.CancelledError:
                await ctx.step(touch, f"clean-{ctx.workflow_id}", name=f"clean-{ctx.workflow_id}")
                raise

        self.work, self.doomed, self.program = work, doomed, program

    async def _run(self, ctx: semel.Context, ops: list[Any], done: list[Any]) -> list[Any]:
        for op in ops:
            match op:
                case ["fail"]:
                    raise ValueError("as it was written")
                case ["again", rest]:
                    ctx.continue_as_new(rest, done)
                case _:
                    done.append(await self._do(ctx, op))
        return done

    async def _do(self, ctx: semel.Context, op: Op) -> Any:
        try:
            return await self._try(ctx, op)
        except semel.ExecutionFailed:
            return FAILED
        except TimeoutError:
            return TIMED_OUT

    async def _try(self, ctx: semel.Context, op: Op) -> Any:
        match op:
            case ["step", name]:
                return await ctx.step(self._touch, name, name=name)
            case ["task", name, failures]:
                return await ctx.execute_task(self.work, name, failures)
            case ["doomed", name]:
                return await ctx.execute_task(self.doomed, name)
            case ["sleep", seconds]:
                return await ctx.sleep(seconds)
            case ["wait", name, timeout]:
                return await ctx.wait_signal(name, timeout)
            case ["pay", name]:
                return await ctx.transaction(_pay, name, name=name)
            case ["publish", name, value]:
                return ctx.publish(name, value)
            case ["child", key]:
                ops = self.programs[key]
                return await ctx.execute_workflow(self.program, ops, [], workflow_id=key)
            case ["gather", ops]:
                return list(await asyncio.gather(*(self._do(ctx, one) for one in ops)))
            case _:
                raise AssertionError(op)

    programs: dict[str, Program]
    """Of children, by workflow id; set before anything runs."""


def _pay(tx: Any, name: str) -> str:
    tx.execute("insert into till (who) values ($1)", name)
    return name
