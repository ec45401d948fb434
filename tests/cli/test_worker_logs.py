"""`semel worker` logs what it does and what people's own code says, as text or as JSON."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.runtime import logs
from semel.runtime.event_log import log_successes
from semel.runtime.logs import BatchedHandler, JsonFormatter, TextFormatter
from tests.cli.shell import ask_to_stop, shop, worker
from tests.world import World, ended

TALK = """

import logging
log = logging.getLogger("shop.payments")

@app.task(retry=1)
async def talk(word: str) -> str:
    log.info("saying %s", word, extra={"tenant": "t-1"})
    if word == "no":
        raise ValueError("not this")
    return word
"""


def _stop(running: subprocess.Popen[str]) -> str:
    ask_to_stop(running)
    return running.communicate(timeout=60)[1]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["text", "json"])
async def test_what_a_worker_says(sqlite_world: World, tmp_path: Path, format: str) -> None:
    name = shop(sqlite_world, tmp_path)
    with (tmp_path / f"{name}.py").open("a") as module:
        module.write(TALK)
    app = sqlite_world.app()

    @app.task(retry=1)
    async def talk(word: str) -> str: ...

    with worker(tmp_path, f"{name}:app", "--log-format", format) as running:
        yes = await app.enqueue(talk, "yes", task_id="k1")
        no = await app.enqueue(talk, "no", task_id="k2")
        assert [await ended(handle) for handle in (yes, no)] == ["completed", "failed"]
        said = _stop(running)
    if format == "text":
        assert f"INFO    shop.payments: saying yes [talk 'k1' {yes.id}]" in said
        assert "INFO    semel.worker: task talk 'k1' completed in " in said
        assert 'raise ValueError("not this")' in said
        assert "semel/engines" not in said
        return
    lines = [json.loads(line) for line in said.splitlines()]
    assert all(
        list(line)[:8] == ["time", "level", "logger", "message", "execution", "key", "name", "attempt"]
        for line in lines
    )
    (own,) = [line for line in lines if line["message"] == "saying yes"]
    assert (own["logger"], own["execution"], own["key"], own["name"], own["attempt"], own["tenant"]) == (
        "shop.payments", yes.id, "k1", "talk", 1, "t-1",
    )  # fmt: skip
    (done,) = [line for line in lines if "completed in" in line["message"]]
    assert (done["logger"], done["level"], done["execution"], done["key"]) == ("semel.worker", "INFO", yes.id, "k1")
    (failed,) = [line for line in lines if line["level"] == "ERROR"]
    assert failed["execution"] == no.id
    assert "ValueError: not this" in failed["message"]


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, whose set-up is put back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("semel")
    before = root.handlers[:], root.level, ours.level, [handler.filters[:] for handler in root.handlers]
    yield root
    root.handlers[:], root.level, ours.level = before[:3]
    for handler, filters in zip(root.handlers, before[3], strict=True):
        handler.filters[:] = filters
    root.setLevel(root.level)


def test_what_an_app_has_set_up_stays_unless_something_else_is_asked_for(root: logging.Logger) -> None:
    theirs = logging.NullHandler()
    root.handlers[:] = [theirs]
    root.setLevel(logging.ERROR)
    semel.configure_logging()
    assert (root.handlers, root.level) == ([theirs], logging.ERROR)
    assert [type(one) for one in theirs.filters] == [semel.ExecutionFilter]
    semel.configure_logging("debug")
    assert (root.handlers, root.level, len(theirs.filters)) == ([theirs], logging.DEBUG, 1)
    semel.configure_logging("info", "json")
    (ours,) = root.handlers
    assert isinstance(ours, BatchedHandler)
    assert isinstance(ours.formatter, JsonFormatter)


def test_lines_in_batches_are_those_that_a_record_would_give(root: logging.Logger) -> None:
    row = ("task", "charge", "o-1", "0198c3", 2, "completed", 0.0415)
    for formatter in (TextFormatter(), JsonFormatter()):
        written = []
        for also in ((), (logging.NullHandler(),)):  # with another handler there are records
            stream = io.StringIO()
            handler = BatchedHandler(formatter, stream)
            handler.addFilter(semel.ExecutionFilter())
            root.handlers[:] = [handler, *also]
            root.setLevel(logging.INFO)
            log_successes([row])
            handler.flush()
            written.append(stream.getvalue())
        plain = [_without_time(text) for text in written]
        assert plain[0] == plain[1]
        assert "task charge 'o-1' completed in 42 ms (execution 0198c3, attempt 2)" in written[0]


def _without_time(text: str) -> Any:
    if text.startswith("{"):
        return {name: value for name, value in json.loads(text).items() if name != "time"}
    return text[23:]


def test_json_takes_whatever_is_logged() -> None:
    record = logging.LogRecord("shop", logging.ERROR, __file__, 1, "\ud800 %s", ("x",), None)
    record.__dict__["strange"] = object()
    try:
        raise ValueError("why")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    semel.ExecutionFilter().filter(record)
    told = json.loads(JsonFormatter().format(record))
    assert told["message"] == "\\ud800 x"
    assert "ValueError: why" in told["exception"]
    assert (told["execution"], told["key"], told["name"], told["attempt"]) == (None, None, None, None)


def test_warnings_are_written_at_once_and_after_what_came_before() -> None:
    stream = io.StringIO()
    handler = BatchedHandler(TextFormatter(), stream)
    log = logging.Logger("shop")  # noqa: LOG001 (one that nobody else has)
    log.addHandler(handler)
    log.info("first")
    log.warning("second")
    assert [line[24:] for line in stream.getvalue().splitlines()] == [
        "INFO    shop: first",
        "WARNING shop: second",
    ]


def test_a_pipe_that_nobody_reads_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "WRITE_WITHIN", 0.05)
    monkeypatch.setattr(logs, "MOST_WAITING", 100)
    read, written = threading.Event(), io.StringIO()

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            read.wait()
            return written.write(text)

    handler = BatchedHandler(JsonFormatter(), Full())
    handler.gather(["first"])
    assert eventually_true(handler._writing.locked)
    began = time.monotonic()
    for n in range(1000):
        handler.gather([f"line {n}"])
    took = time.monotonic() - began
    read.set()
    assert eventually_true(lambda: not handler._writing.locked())
    handler.flush()
    lines = written.getvalue().splitlines()
    assert took < 20, "each line waited for the pipe"
    assert lines[0] == "first"
    assert json.loads(lines[1])["message"] == "900 lines of the log were dropped: nobody read them"
    assert lines[2:] == [f"line {n}" for n in range(100)]


def eventually_true(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()
