"""Where in the user's code something happens."""

from __future__ import annotations

import asyncio
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Final

_PACKAGE: Final = str(Path(__file__).parent.parent)
_ASYNCIO: Final = str(Path(asyncio.__file__).parent)
_LOOP: Final = str(Path(__file__).with_name("loop.py"))


def where() -> str:
    """The line of the workflow's code that is running, if one is."""
    frame: FrameType | None = sys._getframe(1)
    nearest = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if not nearest and not file.startswith((_PACKAGE, _ASYNCIO)):
            nearest = f"{file}:{frame.f_lineno}"
        if frame.f_code.co_name == "run" and file == _LOOP:
            return nearest
        frame = frame.f_back
    return ""  # what lies further out is whoever started the worker


def raised_at(error: BaseException) -> str:
    """The innermost line of the user's that an exception came through."""
    lines = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_PACKAGE, _ASYNCIO))
    ]
    return lines[-1] if lines else ""
