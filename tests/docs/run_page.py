"""Run the Python of one page, block after block, as a reader with `python -m asyncio` would.

    python -m tests.docs.run_page docs/tutorial/first-task.md

Blocks share their names and one event loop, so `await` works at the top level. A block of any kind with
`title="shop.py"` is written to that file instead, and run as a program of its own if it says `run`. A
`text output` block must be what the Python block before it printed, but for ids and times. In a block
`console run` every `$ semel …`, `$ alembic …` and `$ python …` must end well. The working folder is the reader's.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import logging
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType

from tests.docs.pages import Block, blocks, short

VARIES = (
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?"), "TIME"),
)
PROGRAMS = {"semel": ["-m", "semel"], "alembic": ["-m", "alembic"], "python": []}
"""What a reader can type, and how this Python runs it."""


def compiled(block: Block, page: Path) -> CodeType:
    """Code whose tracebacks point into the page."""
    source = "\n" * (block.line - 1) + block.body
    return compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


async def run(page: Path) -> int:
    """Run every block; how many there were."""
    module = sys.modules["__page__"] = ModuleType("__page__")  # where classes of the page are from
    printed, count = "", 0
    for block in blocks(page):
        if block.language == "text" and "output" in block.marks:
            same(printed, block, page)
        if block.title is not None:
            printed = write(block, block.title)
        if block.language == "console" and "run" in block.marks:
            command(block)
        if not block.runs:
            continue
        count += 1
        if block.title is not None:
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            pending = eval(compiled(block, page), vars(module))
            if inspect.iscoroutine(pending):
                await pending
        printed = out.getvalue()
    return count


def write(block: Block, name: str) -> str:
    """Write the file; if the page tells the reader to run it, what it prints."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(block.body, encoding="utf-8")
    if "run" not in block.marks.split():
        return ""
    done = subprocess.run([sys.executable, name], capture_output=True, text=True, timeout=100, check=False)
    if done.returncode:
        raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def command(block: Block) -> None:
    """Type the commands of a console block."""
    for line in block.body.splitlines():
        if line.startswith(tuple(f"$ {program} " for program in PROGRAMS)):
            _, program, *arguments = shlex.split(line, comments=True)
            words = [sys.executable, *PROGRAMS[program], *arguments]
            done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
            if done.returncode:
                raise SystemExit(f"{line}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")


def same(printed: str, block: Block, page: Path) -> None:
    """What the page shows is what came out."""
    wanted = block.body
    for pattern, word in VARIES:
        printed, wanted = pattern.sub(word, printed), pattern.sub(word, wanted)
    if printed.rstrip() != wanted.rstrip():
        raise SystemExit(f"{short(page)}:{block.line} shows\n{wanted}\nbut this was printed:\n{printed}")


async def run_forked(say: Callable[[str], None], page: str, folder: str, env: dict[str, str]) -> None:
    """Run a page in a child of a fork server (tests/faults/forks.py), as a process of its own would."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    logging.disable(logging.NOTSET)
    warnings.simplefilter("error", RuntimeWarning)
    sys.path.insert(0, "")
    try:
        await run(Path(page))
    except SystemExit as ended:
        raise RuntimeError(str(ended)) from ended


def main() -> None:
    sys.path.insert(0, "")
    count = asyncio.run(run(Path(sys.argv[1]).resolve()))
    print(f"{count} blocks ran")


if __name__ == "__main__":
    main()
