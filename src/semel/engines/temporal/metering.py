"""The runtime of Temporal's SDK: its metrics, for Prometheus to read from this process, and what it logs."""

from __future__ import annotations

import threading
from typing import Final

from temporalio.runtime import LoggingConfig, PrometheusConfig, Runtime, TelemetryConfig, TelemetryFilter

from semel.errors import ConfigError

_runtimes: Final[dict[str | None, Runtime]] = {}
_LOGGING: Final = LoggingConfig(f"{TelemetryFilter('WARN', 'ERROR').formatted()},temporalio_client::retry=ERROR")
"""As the SDK's own, but without a line for every call that it tries again while the cluster is away: a worker says so
once, and callers get an error."""
_lock: Final = threading.Lock()


def metered(address: str | None) -> Runtime:
    """The runtime that shows its metrics at `address`, one for the whole process; None: one that shows none.

    ConfigError: the address is taken, or is none.
    """
    metrics = None if address is None else PrometheusConfig(bind_address=address)
    with _lock:
        if address not in _runtimes:
            try:
                _runtimes[address] = Runtime(telemetry=TelemetryConfig(logging=_LOGGING, metrics=metrics))
            except (RuntimeError, ValueError) as error:
                raise ConfigError(
                    f"temporal.metrics={address!r}: nothing can be served there ({error}). Give a free address of this "
                    "machine for each process, such as '127.0.0.1:9464'."
                ) from None
        return _runtimes[address]
