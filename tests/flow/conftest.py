"""Workflows in memory are closed at the end of a test, as a worker closes them: their tasks are not merely dropped."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from semel.flow.instance import Instance


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: weakref.WeakSet[Instance] = weakref.WeakSet()
    real = Instance.__init__

    def init(self: Instance, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        made.add(self)

    monkeypatch.setattr(Instance, "__init__", init)
    yield
    for instance in list(made):
        instance.close()
