"""The metrics of Temporal's SDK, for Prometheus to read from this process."""

from __future__ import annotations

import threading
from typing import Final

from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from semel.errors import ConfigError

_runtimes: Final[dict[str, Runtime]] = {}
_lock: Final = threading.Lock()


def metered(address: str | None) -> Runtime | None:
    """The runtime that shows its metrics at `address`, one for the whole process; None: Temporal's default one.

    ConfigError: the address is taken, or is none.
    """
    if address is None:
        return None
    with _lock:
        if address not in _runtimes:
            try:
                _runtimes[address] = Runtime(telemetry=TelemetryConfig(metrics=PrometheusConfig(bind_address=address)))
            except (RuntimeError, ValueError) as error:
                raise ConfigError(
                    f"temporal.metrics={address!r}: nothing can be served there ({error}). Give a free address of this "
                    "machine for each process, such as '127.0.0.1:9464'."
                ) from None
        return _runtimes[address]
