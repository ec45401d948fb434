"""Excepts that swallow cancellation."""

import asyncio
import contextlib
from asyncio import CancelledError
from contextlib import suppress

import semel

app = semel.App()


@app.workflow
async def catching(ctx: semel.Context) -> None:
    try:
        await asyncio.sleep(1)
    except:  # expect: D12
        pass
    try:
        await asyncio.sleep(1)
    except BaseException as error:  # expect: D12
        ctx.publish(str(error))
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:  # expect: D12
        return
    try:
        await asyncio.sleep(1)
    except (ValueError, CancelledError):  # expect: D12
        pass
    with suppress(BaseException):  # expect: D12
        await asyncio.sleep(1)
    with contextlib.suppress(CancelledError, KeyError):  # expect: D12
        await asyncio.sleep(1)
    try:
        ctx.publish("x")
    except:  # expect: D12
        pass


@app.workflow
async def leaving(ctx: semel.Context, names: list[str]) -> list[str]:
    for name in names:
        try:
            await ctx.wait_signal(name)
        finally:
            if name == "a":
                continue  # expect: D12
            break  # expect: D12
    try:
        await asyncio.sleep(1)
    finally:
        return names  # expect: D12
