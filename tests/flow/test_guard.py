"""Workflow code cannot touch the outside: it is refused at its line, before it happens, on its thread only."""

from __future__ import annotations

import gc
import glob
import inspect
import io
import logging
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import timeit
import traceback
import urllib.request
import warnings
import weakref
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.flow.guard import _hook, guard

REFUSED: dict[str, Callable[[], Any]] = {
    "open('in.txt')": lambda: open("in.txt"),
    "open('out.txt')": lambda: Path("out.txt").write_text("x"),
    "open('low.txt')": lambda: os.open("low.txt", os.O_CREAT),
    "os.listdir('.')": lambda: os.listdir("."),
    "os.scandir('.')": lambda: os.scandir("."),
    "os.mkdir('d')": lambda: os.mkdir("d"),
    "os.rename('a')": lambda: os.rename("a", "b"),
    "os.remove('a')": lambda: Path("a").unlink(),
    "os.rmdir('d')": lambda: os.rmdir("d"),
    "os.chmod('a')": lambda: os.chmod("a", 0o600),
    "os.symlink('a')": lambda: os.symlink("a", "b"),
    "os.truncate('a')": lambda: os.truncate("a", 0),
    "os.walk('.')": lambda: list(os.walk(".")),
    "glob.glob('*')": lambda: glob.glob("*"),
    "shutil.copyfile('a')": lambda: shutil.copyfile("a", "b"),
    "shutil.rmtree('d')": lambda: shutil.rmtree("d"),
    "socket()": socket.socket,
    "socket.getaddrinfo('localhost')": lambda: socket.getaddrinfo("localhost", 80),
    "socket.gethostname()": socket.gethostname,
    "urllib.Request('http://127.0.0.1:9/')": lambda: urllib.request.urlopen("http://127.0.0.1:9/"),
    "sqlite3.connect('x.db')": lambda: sqlite3.connect("x.db"),
    "subprocess.Popen('true')": lambda: subprocess.run(["true"], check=False),
    "os.system(b'true')": lambda: os.system("true"),
    "os.fork()": os.fork,
    "os.exec('true')": lambda: os.execv("true", ["true"]),
    "os.posix_spawn('true')": lambda: os.posix_spawn("true", ["true"], {}),
    "os.kill(1)": lambda: os.kill(1, 0),
    "os.putenv(b'SOME_NAME')": lambda: os.environ.update(SOME_NAME="x"),
    "builtins.input('really? ')": lambda: input("really? "),
}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("what", REFUSED)
def test_what_belongs_in_a_task_is_refused_before_it_happens(what: str, tmp_path: Path) -> None:
    call = REFUSED[what]
    with guard("workflow 'process_order'"), pytest.raises(semel.Forbidden) as caught:
        call()
    error = caught.value
    assert (error.code, error.what) == ("SEMEL-W02", what)
    assert error.where == f"{__file__}:{inspect.getsourcelines(call)[1] if call.__module__ == __name__ else line()}"
    assert error.message.startswith(f"workflow 'process_order': {what} at {error.where} belongs in a task. ")
    assert list(tmp_path.iterdir()) == []
    assert "SOME_NAME" not in os.environ


def line() -> int:
    """Where `call()` stands in the test above: what has no function of its own is blamed on its caller."""
    source, first = inspect.getsourcelines(test_what_belongs_in_a_task_is_refused_before_it_happens)
    return first + next(index for index, text in enumerate(source) if text.strip() == "call()")


def test_temporary_files_are_files() -> None:
    for call in (tempfile.mkdtemp, tempfile.mkstemp, tempfile.TemporaryFile):
        with guard("w"), pytest.raises(semel.Forbidden):
            call()


@pytest.mark.skipif(sys.version_info < (3, 13), reason="this Python announces neither")
def test_sleeping_and_threads_are_refused_where_python_tells() -> None:
    with guard("w"), pytest.raises(semel.Forbidden, match=r"await asyncio.sleep"):
        time.sleep(0)
    with guard("w"), pytest.raises(semel.Forbidden, match=r"asyncio.gather"):
        threading.Thread(target=int).start()


def test_the_traceback_points_at_the_line() -> None:
    def workflow() -> None:
        open("x")

    with guard("w"), pytest.raises(semel.Forbidden) as caught:
        workflow()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-2].line is not None
    assert frames[-2].line.startswith('open("x")')
    assert caught.value.where == f"{__file__}:{frames[-2].lineno}"


def test_it_is_no_oserror_and_may_be_caught() -> None:
    def careless() -> str:
        try:
            return Path("x").read_text()
        except OSError:
            return "swallowed"

    with guard("w"):
        with pytest.raises(semel.Forbidden):
            careless()
        with pytest.raises(semel.Forbidden):  # and the guard still stands
            careless()
    assert careless() == "swallowed"


def test_imports_work_and_what_they_bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.txt").write_text("data")
    (tmp_path / "guard_inner.py").write_text(
        "import pathlib, socket\nlines = pathlib.Path('data.txt').read_text()\nsocket.socket().close()"
    )
    (tmp_path / "guard_outer.py").write_text("def value():\n    import guard_inner\n    return guard_inner.lines")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    with guard("w"):
        import guard_outer  # type: ignore[import-not-found]

        assert guard_outer.value() == "data"
        import colorsys  # noqa: F401
    assert list(tmp_path.glob("__pycache__/guard_inner*.pyc"))
    # Once imported, it is code like any other.
    with guard("w"), pytest.raises(semel.Forbidden):
        guard_outer.value.__globals__["__builtins__"]["open"]("data.txt")


def test_tracebacks_and_warnings_show_source() -> None:
    import linecache

    linecache.clearcache()
    with guard("w"), warnings.catch_warnings():
        try:
            raise ValueError("here")
        except ValueError:
            assert 'raise ValueError("here")' in traceback.format_exc()
        linecache.clearcache()
        warnings.simplefilter("always")
        shown: list[str] = []
        warnings.showwarning = lambda *seen, **more: shown.append(warnings.formatwarning(*seen[:4]))
        warnings.warn("look", stacklevel=1)
        assert 'warnings.warn("look", stacklevel=1)' in shown[0]


def test_logging_is_the_operators_choice(tmp_path: Path) -> None:
    logger = logging.getLogger("tests.flow.guard")
    stream = io.StringIO()
    handlers = [logging.StreamHandler(stream), logging.FileHandler(tmp_path / "late.log", delay=True)]
    for handler in handlers:
        logger.addHandler(handler)
    try:
        with guard("w"):
            try:
                raise ValueError("told")
            except ValueError:
                logger.exception("it went wrong")
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
    assert "it went wrong" in stream.getvalue()
    assert "ValueError: told" in (tmp_path / "late.log").read_text()


def test_printing_and_time_zones_are_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    with guard("w"):
        print("hello")
        zoneinfo.ZoneInfo.no_cache("Europe/Oslo")
        with pytest.raises(zoneinfo.ZoneInfoNotFoundError):
            zoneinfo.ZoneInfo.no_cache("Europe/Nowhere")
    assert capsys.readouterr().out == "hello\n"


def test_finalizers_of_others_do_their_work(tmp_path: Path) -> None:
    class Kept:
        def __del__(self) -> None:
            (tmp_path / "del").write_text("")

    kept: list[Any] = [Kept(), tempfile.TemporaryDirectory(dir=tmp_path)]
    weakref.finalize(kept[0], lambda: (tmp_path / "finalize").write_text(""))
    with guard("w"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        kept.clear()
        gc.collect()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["del", "finalize"]


def test_other_threads_are_not_concerned() -> None:
    inside, done = threading.Event(), threading.Event()
    problems: list[BaseException] = []

    def elsewhere() -> None:
        inside.wait(60)
        try:
            Path("x").write_text("x")
            socket.socket().close()
        except BaseException as error:
            problems.append(error)
        done.set()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    with guard("w"):
        inside.set()
        assert done.wait(60)
        with pytest.raises(semel.Forbidden):
            open("x")
    thread.join()
    assert problems == []


def test_it_nests_and_ends_with_its_block() -> None:
    with guard("outer"):
        with guard("inner"), pytest.raises(semel.Forbidden, match="inner: open"):
            open("x")
        with pytest.raises(semel.Forbidden, match="outer: open"):
            open("x")
    Path("x").write_text("x")
    with pytest.raises(ZeroDivisionError), guard("w"):
        raise ZeroDivisionError
    Path("x").write_text("y")


def test_what_is_around_the_guard_excuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is started by importing a module has importlib on its stack all the time."""
    (tmp_path / "guard_worker.py").write_text(
        "from semel.flow.guard import guard\ndef flow():\n    open('x')\nwith guard('w'):\n    flow()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(semel.Forbidden) as caught:
        __import__("guard_worker")
    assert caught.value.where == f"{tmp_path}/guard_worker.py:3"


def test_a_library_is_not_blamed_for_its_caller() -> None:
    def workflow() -> None:
        urllib.request.urlopen("http://127.0.0.1:9/")

    with guard("w"), pytest.raises(semel.Forbidden) as caught:
        workflow()
    assert caught.value.where == f"{__file__}:{inspect.getsourcelines(workflow)[1] + 1}"


def test_what_it_costs() -> None:
    """Printed, not asserted: `pytest -s`."""
    with guard("install"):
        pass

    def cost(statement: Callable[[], Any]) -> float:
        number = 10_000
        return min(timeit.repeat(statement, number=number, repeat=5)) / number * 1e9

    def enter() -> None:
        with guard("w"):
            pass

    nothing = cost(lambda: None)
    off = cost(lambda: _hook("import", ())) - nothing
    whole = cost(lambda: sys.audit("semel.test")) - nothing
    with guard("w"):
        on = cost(lambda: _hook("import", ())) - nothing
    elsewhere, stop = threading.Event(), threading.Event()

    def other() -> None:
        with guard("w"):
            elsewhere.set()
            stop.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    elsewhere.wait(60)
    beside = cost(lambda: _hook("import", ())) - nothing
    stop.set()
    thread.join()
    print(
        f"\nper audit event: {off:.0f} ns while no thread is guarded, {beside:.0f} ns beside a guarded one, "
        f"{on:.0f} ns on it; sys.audit and its hook {whole:.0f} ns; to enter and leave {cost(enter):.0f} ns"
    )
