"""A fork server: everything imported once, one child for each call, so that a process that dies costs milliseconds.

`python -m tests.faults.forks` reads calls as JSON lines and answers each with how the child ended and what it had
said until then. The tests never fork themselves: they have threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import logging
import os
import pkgutil
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

PATIENCE = 150.0
Say = Callable[[Any], None]


class Forks:
    """The caller's end."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.forks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, function: str, **arguments: Any) -> tuple[int, list[Any]]:
        """Run `module:coroutine` in a child: (exit code, negative for a signal; what it said)."""
        return self.together((function, arguments))[0]

    def together(self, *calls: tuple[str, dict[str, Any]]) -> list[tuple[int, list[Any]]]:
        """Several calls at the same time, each in its own child."""
        stdin: IO[bytes] | None = self._server.stdin
        assert stdin is not None
        assert self._server.stdout is not None
        stdin.write(json.dumps(calls).encode() + b"\n")
        stdin.flush()
        line = self._server.stdout.readline()
        assert line, "the fork server is gone"
        return [(code, said) for code, said in json.loads(line)]

    def close(self) -> None:
        """End the server."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(60)
        self._server.stdout.close()


@contextmanager
def forks() -> Iterator[Forks]:
    """A fork server for a while."""
    server = Forks()
    try:
        yield server
    finally:
        server.close()


def _child(function: str, arguments: dict[str, Any], out: int) -> None:
    module, _, name = function.partition(":")
    code = 1
    try:
        call = getattr(importlib.import_module(module), name)

        def say(what: Any) -> None:
            os.write(out, json.dumps(what).encode() + b"\n")

        asyncio.run(call(say, **arguments))
        code = 0
    except BaseException:
        import traceback

        os.write(out, json.dumps({"failed": traceback.format_exc()[-4000:]}).encode() + b"\n")
    finally:
        os._exit(code)


def _collect(child: int, source: int) -> tuple[int, list[Any]]:
    data, end = b"", time.monotonic() + PATIENCE
    while True:
        ready, _, _ = select.select([source], [], [], max(0.0, end - time.monotonic()))
        piece = os.read(source, 65536) if ready else b""
        data += piece
        if not ready:
            os.kill(child, signal.SIGKILL)
            data += json.dumps({"failed": f"it took longer than {PATIENCE:g} s"}).encode() + b"\n"
        if not piece:
            break
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), [json.loads(line) for line in data.splitlines()]


def main() -> None:
    """Serve until the caller closes its end."""
    logging.disable(logging.CRITICAL)
    for module in ("tests.faults.points", "tests.faults.crowd", "tests.faults.record_points"):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    _import_what_children_use()
    gc.collect()
    gc.freeze()
    for line in sys.stdin.buffer:
        children = [_fork(function, arguments) for function, arguments in json.loads(line)]
        answers = [_collect(child, source) for child, source in children]
        for _, source in children:
            os.close(source)
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()


def _import_what_children_use() -> None:
    """Semel imports its app and its engines when they are first asked for: half of a short child's time otherwise."""
    import ctypes  # noqa: F401
    import importlib.resources.readers

    import semel
    from semel.engines.sqlite import writer_thread

    writer_thread.statements()
    for name in semel.__all__:
        getattr(semel, name)
    for package in ("semel.engines.journal", "semel.engines.sqlite", "semel.engines.postgres"):
        for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(found.name)


def _fork(function: str, arguments: dict[str, Any]) -> tuple[int, int]:
    source, out = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        _child(function, arguments, out)
    os.close(out)
    return child, source


if __name__ == "__main__":
    main()
