"""Restate: its server keeps the journal and calls the worker over HTTP/2. Its log is synced, as it comes."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import hypercorn.asyncio
import hypercorn.config
import restate

from bench.measure import LONG, STEPS, WORKFLOWS, Arguments, arguments, callers, emit, process, stop, worker_of
from bench.server import Missing, await_port, free_port

CALLERS = 50  # the best of the numbers tried
PORT = "BENCH_RESTATE_WORKER_PORT"  # how the worker learns where to listen
START_WITHIN = 60.0
STREAMS = 2**31 - 1

service = restate.Service("Bench")


@service.handler()
async def steps(ctx: restate.Context, count: int) -> int:
    async def one() -> int:
        return 1

    for i in range(count):
        await ctx.run_typed(f"step-{i}", one)
    return count


def worker() -> None:
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{os.environ[PORT]}"]
    config.h2_max_concurrent_streams = STREAMS
    config.accesslog = None
    asyncio.run(hypercorn.asyncio.serve(restate.app([service]), config))


@contextmanager
def server(scratch: Path) -> Iterator[tuple[str, str]]:
    """Where to send requests, and where to register services."""
    programs = list(Path(sys.prefix).glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))
    if not programs:
        raise Missing("npm has no restate-server for this machine")
    data = scratch.resolve() / f"restate-{os.getpid()}"
    data.mkdir()
    ingress, admin, node = free_port(), free_port(), free_port()
    settings = {
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_ADVERTISED_HOST": "127.0.0.1",
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_DISABLE_TELEMETRY": "true",
        "TMPDIR": str(data),  # it leaves folders there
    }
    command = [str(programs[0]), "--no-logo", "--base-dir", str(data), "--node-name", "bench", "--log-filter", "error"]
    with (scratch / "restate.log").open("ab") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **settings})
    try:
        for port in (admin, ingress):
            await_port(port, child, "restate-server")
        yield f"http://127.0.0.1:{ingress}", f"http://127.0.0.1:{admin}"
    finally:
        stop(child)
        shutil.rmtree(data, ignore_errors=True)


@asynccontextmanager
async def registered(admin: str, port: int) -> AsyncIterator[aiohttp.ClientSession]:
    """A client, once the server knows the worker."""
    deadline = time.monotonic() + START_WITHIN
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        while True:
            async with session.post(f"{admin}/deployments", json={"uri": f"http://127.0.0.1:{port}"}) as answer:
                if answer.status < 300:
                    break
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the worker is not accepted: {await answer.text()}")
            await asyncio.sleep(0.5)
        yield session


async def measure(args: Arguments) -> None:
    """The worker is up; the clock runs from the first start until the last result is here."""
    port = free_port()
    listening = process(
        worker_of("bench.peers.restate_http", args), args.scratch / "restate-worker.log", **{PORT: str(port)}
    )
    with server(args.scratch) as (ingress, admin), listening:
        async with registered(admin, port) as session:

            async def run(key: str, count: int) -> None:
                headers: dict[str, Any] = {"idempotency-key": key}
                async with session.post(f"{ingress}/Bench/steps", json=count, headers=headers) as answer:
                    if answer.status != 200 or await answer.json() != count:
                        raise RuntimeError(f"{answer.status}: {await answer.text()}")

            await callers(CALLERS, CALLERS, lambda i: run(f"first-{i}", 1))
            rate = await callers(WORKFLOWS, CALLERS, lambda i: run(f"many-{i}", STEPS))
            emit("W4 500x10", STEPS * rate, "steps/s", callers=CALLERS)
            emit("W4 1x1000", LONG * await callers(1, 1, lambda _: run("long", LONG)), "steps/s")


def main() -> None:
    args = arguments()
    if args.part == "worker":
        worker()
    elif args.part == "steps":
        try:
            asyncio.run(measure(args))
        except Missing as why:
            sys.exit(str(why))
    else:
        sys.exit(f"Restate has no part {args.part!r}")


if __name__ == "__main__":
    main()
