"""The OpenTelemetry trace of whoever writes a row: it travels in the row, and what the relay does belongs to it.

Where OpenTelemetry is not used nothing is written, and nothing is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from msgspec import Struct

from semel.codec import decoder_of
from semel.transactional.outbox.events import TakenRow

MOST: Final = 512
"""Characters of a header; a longer `tracestate` is left out, as the recommendation of the W3C allows."""


TRACE_FIELD: Final = b'"trace":'
"""What every payload with a trace contains; one without may contain it too."""


class _Traced(Struct, frozen=True):
    trace: dict[str, str] | None = None


_read: Final = decoder_of(_Traced).decode


def current_trace() -> dict[str, str] | None:
    """The headers `traceparent` and `tracestate` of the current span; None: there is none."""
    if "opentelemetry.trace" not in sys.modules:
        return None  # then nobody in this process has begun a span
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return {name: value for name, value in carrier.items() if len(value) <= MOST} or None


def add_trace(payload: str, trace: dict[str, str]) -> str:
    """The JSON object of a row with the trace in it."""
    return f'{payload[:-1]},"trace":{msgspec.json.encode(trace).decode()}}}'


def trace_in(payload: bytes) -> dict[str, str] | None:
    """The trace of a row. Plain SQL may have written anything: what is none counts as none."""
    try:
        return _read(payload).trace
    except (msgspec.MsgspecError, RecursionError):
        return None


@contextmanager
def continue_trace(row: TakenRow) -> Iterator[None]:
    """What is done inside belongs to the trace of the row: a span `relay semel.start`, where spans are recorded."""
    headers = trace_in(row.payload) if row.event.event_type.startswith("semel.") else None
    if headers is None:
        yield
        return
    try:
        from opentelemetry import trace
    except ImportError:
        yield
        return
    with trace.get_tracer("semel").start_as_current_span(
        f"relay {row.event.event_type}",
        context=_propagator().extract(headers),
        kind=trace.SpanKind.CONSUMER,
        attributes={"semel.outbox.row": row.event.id, "semel.key": row.event.key or ""},
    ):
        yield


def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()
