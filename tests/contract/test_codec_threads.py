"""Threads that use a type for the first time at once: msgspec alone dies of SIGSEGV then.

Each test runs in a process of its own, since what it looks for would end the tests, too.
"""

import subprocess
import sys
from textwrap import dedent

import pytest

RACE = """
    import faulthandler, sys, threading, types
    faulthandler.enable()
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can

    def race(*calls):
        start = threading.Barrier(len(calls))
        errors, ready = [], []
        def run(call):
            start.wait()
            ready.append(call)
            while len(ready) < len(calls):
                pass
            try:
                call()
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
"""
PEOPLES_TYPES = """
    from semel.codec import Returns, Shape, reader_of

    SOURCE = '''
    from __future__ import annotations
    import dataclasses, msgspec
    from typing import Generic, NamedTuple, TypedDict, TypeVar
    T = TypeVar("T")
    class Item(msgspec.Struct):
        name: str
        tags: list[str] = msgspec.field(default_factory=list)
    class Point(NamedTuple):
        x: int
        item: Item | None = None
    class Options(TypedDict, total=False):
        item: Item
        point: Point
    @dataclasses.dataclass
    class Address:
        items: dict[str, Item]
        options: Options
    class Box(msgspec.Struct, Generic[T]):
        content: T
        address: Address | None = None
    class Order(msgspec.Struct):
        item: Item
        box: Box[Item]
        point: Point
        address: Address
        parent: Order | None = None
    def take(order: Order, box: Box[Address]) -> Order:
        return order
    '''
    ITEM = '{"name": "a"}'
    ADDRESS = '{"items": {"a": %s}, "options": {"item": %s, "point": [1, null]}}' % (ITEM, ITEM)
    BOX = '{"content": %s, "address": %s}' % (ITEM, ADDRESS)
    ORDER = '{"item": %s, "box": %s, "point": [1, %s], "address": %s}' % (ITEM, BOX, ITEM, ADDRESS)
    TAKEN = '{"order": %s, "box": {"content": %s}}' % (ORDER, ADDRESS)

    for number in range(60):
        module = types.ModuleType(f"shop{number}")
        sys.modules[module.__name__] = module
        exec(compile(SOURCE, module.__name__, "exec"), module.__dict__)
        race(
            lambda: reader_of(module.Order).decode(ORDER),
            lambda: reader_of(list[module.Order]).decode(f"[{ORDER}]"),
            lambda: reader_of(module.Box[module.Item]).decode(BOX),
            lambda: reader_of(module.Address).decode(ADDRESS),
            lambda: reader_of(module.Options).decode("{}"),
            lambda: reader_of(module.Point).decode("[1]"),
            lambda: Shape(module.take, "take").decode_input(TAKEN),
            lambda: Returns.of(module.take, "take").decode_result(ORDER.encode()),
        )
    print("done")
"""
OUR_TYPES = """
    from semel.engine import conflicts
    from semel.engines.journal import read
    from semel.engines.temporal import carryover, entity_turns, failures, memo, payloads, worker_requests
    from semel.engines.temporal.inside import message_counts
    from semel.flow import entries, history_file

    ERROR = b'{"type": "ValueError", "message": "no"}'
    HISTORY = '{"format": "semel-history", "version": 1, "workflow": "w", "kind": "workflow", "key": "k", "id": "i"}'

    def refused():
        try:
            history_file.load(HISTORY)
        except Exception as error:
            assert "no history" in str(error), error

    for call in (
        lambda: read.load_error(ERROR),
        lambda: conflicts.load("m", None, b'{"status": "failed"}'),
        lambda: entries.load(b'[["r", 1, "completed"]]'),
        lambda: failures.error_of(types.SimpleNamespace(details=[{"type": "E", "message": "m"}])),
        lambda: memo.from_memo({"kind": "task", "name": "n"}),
        lambda: message_counts.counted("e", {message_counts.TALLY: {"joined": [1, 2, 3]}}),
        lambda: carryover.load(b"{}"),
        lambda: carryover.unpack(carryover.pack(carryover.Inheritance())),
        lambda: worker_requests.told_of(payloads.wrap(b'{"id": "i"}')),
        lambda: worker_requests.made_of(payloads.wrap(b"[1, 1]")),
        lambda: entity_turns.read(b"[null, true, false]"),
        refused,
    ):
        race(*[call] * 8)
    print("done")
"""


def run(*parts: str) -> str:
    program = "".join(dedent(part) for part in parts)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, f"it ended with {ran.returncode}: {ran.stderr[-3000:]}"
    return ran.stdout


@pytest.mark.slow
def test_peoples_types_may_be_used_first_by_many_threads() -> None:
    assert run(RACE, PEOPLES_TYPES) == "done\n"


@pytest.mark.slow
def test_our_types_may_be_used_first_by_many_threads() -> None:
    assert run(RACE, OUR_TYPES) == "done\n"
