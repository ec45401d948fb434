"""From settings to an engine on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from temporalio.client import Interceptor
from temporalio.converter import PayloadCodec

from semel.define.registry import Registry
from semel.engine.protocol import Engine
from semel.engines.temporal.connect import parse
from semel.engines.temporal.engine import TemporalEngine
from semel.engines.temporal.records import open_records
from semel.runtime.events import Events
from semel.settings import Settings


def open_engine(
    settings: Settings,
    namespace: str,
    definitions: Registry,
    *,
    migrate: bool,
    records_too: bool | None,
    clock: Callable[[], float],
    codec: PayloadCodec | None = None,
    interceptors: Sequence[Interceptor] = (),
    events: Events | None = None,
) -> Engine:
    """A new engine for the running event loop; it connects with its first verb."""
    target = replace(parse(settings.url, settings.temporal, namespace), codec=codec, interceptors=tuple(interceptors))
    records = open_records(settings.records, namespace, clock, records_too, settings.sqlite_driver)
    return TemporalEngine(target, records, settings, definitions, auto_migrate=migrate, clock=clock, events=events)
