"""Examples as tests play them: on a world's database, by its clock, and in processes that die."""

from __future__ import annotations

import importlib
import json
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


OPENED = """
import functools, json, os
import semel

real, options = semel.App, json.loads(os.environ["APP_OPTIONS"])
semel.App = lambda namespace: real(**{**options, "namespace": options["namespace"].format(namespace=namespace)})
"""
"""Has a process open the apps of an example on the world's database."""


@contextmanager
def played(name: str, world: World, *others: str) -> Iterator[ModuleType]:
    """The module, freshly loaded, and other modules that it imports; their apps are the world's."""
    real = semel.App

    def app_of_the_world(**options: Any) -> semel.App:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(semel, "App", real)  # a world makes its apps by that name too
            return world.app(**options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(semel, "App", app_of_the_world)
        for one in (name, *others):
            package, _, module_name = f"examples.{one}".rpartition(".")
            sys.modules.pop(f"examples.{one}", None)
            vars(importlib.import_module(package)).pop(module_name, None)  # `from package import module` looks there
        module = importlib.import_module(f"examples.{name}")
    yield module


def dies(world: World, name: str, code: str) -> None:
    """Run code in a process of its own, in which `example` is the module and `os._exit(DEAD)` a crash."""
    script = f"{OPENED}\nimport asyncio, functools, os\nimport examples.{name} as example\nDEAD = {DEAD}\n{code}\n"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    options = world.app_options(namespace="{namespace}")
    env = {**os.environ, "SEMEL_URL": world.url, "PYTHONPATH": path, "APP_OPTIONS": json.dumps(options)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == DEAD, done.stdout + done.stderr
