"""Examples as tests play them: on a world's database, by its clock, and in processes that die."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

import semel
from tests.docs.pages import ROOT
from tests.world import World

DEAD = 7
"""The exit code of a process that died where it was told to."""


@contextmanager
def played(name: str, world: World) -> Iterator[ModuleType]:
    """The module, freshly loaded; its app is one of the world's."""
    real = semel.App

    def app_of_the_world(**options: Any) -> semel.App:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(semel, "App", real)  # a world makes its apps by that name too
            return world.app(**options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(semel, "App", app_of_the_world)
        sys.modules.pop(f"examples.{name}", None)
        module = importlib.import_module(f"examples.{name}")
    yield module


def dies(world: World, name: str, code: str) -> None:
    """Run code in a process of its own, in which `example` is the module and `os._exit(DEAD)` a crash."""
    script = f"import asyncio, functools, os\nimport examples.{name} as example\nDEAD = {DEAD}\n{code}\n"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    env = {**os.environ, "SEMEL_URL": world.url, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == DEAD, done.stdout + done.stderr
