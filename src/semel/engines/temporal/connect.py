"""From URL, settings and Temporal's own configuration to a client, and the SDK's metrics."""

from __future__ import annotations

import atexit
import functools
import ipaddress
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from temporalio.client import Client, Interceptor
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec
from temporalio.envconfig import ClientConfigProfile, ClientConfigTLS
from temporalio.runtime import LoggingConfig, PrometheusConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import TLSConfig

from semel.engines.temporal.url import PORT, Place, parse_url
from semel.errors import ConfigError, EngineError, EngineUnavailable
from semel.settings import TemporalSettings, parse_bool

NOWHERE = f"127.0.0.1:{PORT}"
"""Where a development server listens, should nothing say where."""
CONNECT_WITHIN = timedelta(seconds=10)
PAUSE = 0.3
"""Seconds that a process waits before it ends."""
REFUSED = ("PermissionDenied", "Unauthenticated", "permission denied", "Request unauthorized")


@dataclass(frozen=True, slots=True)
class Target:
    """A server and a namespace, what it takes to be let in, and what is between. Shows no secret."""

    address: str
    namespace: str
    tls: bool | TLSConfig = field(default=False, repr=False)
    api_key: str | None = field(default=None, repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    codec: PayloadCodec | None = field(default=None, repr=False)
    """Every payload goes through it, on clients and workers: to be encrypted, as a rule."""
    interceptors: tuple[Interceptor, ...] = ()
    metrics: str | None = None
    """Where this process shows the metrics of the SDK."""


def parse(url: str, settings: TemporalSettings, namespace: str | None = None) -> Target:
    """Everything that is known of a server. For each single thing the first that says it counts: `namespace`, the URL,
    the settings (SEMEL_TEMPORAL_*, then semel.toml), Temporal's own configuration, the default.

    Credentials of Temporal's own configuration go only to the address that it names, if it names one. ConfigError
    says what contradicts itself, or which file is missing.
    """
    place = parse_url(url)
    settings = _with_options(settings, place)
    own = _own(settings, place.address)
    api_key = settings.api_key or own.api_key
    address = place.address or own.address or NOWHERE
    tls = _tls(settings, own.tls or ClientConfigTLS(), keyed=api_key is not None)
    if api_key is not None and tls is False and not _loopback(address):
        raise ConfigError(f"tls is false and there is an API key: {address} would get it in the clear. Leave tls away.")
    name = namespace or place.namespace or own.namespace or "default"
    return Target(address, name, tls, api_key, own.grpc_meta, metrics=settings.metrics)


def _with_options(settings: TemporalSettings, place: Place) -> TemporalSettings:
    options: dict[str, Any] = dict(place.options)
    if "tls" in options:
        options["tls"] = parse_bool(options["tls"], "tls")
    return replace(settings, **options)


def _own(settings: TemporalSettings, address: str | None) -> ClientConfigProfile:
    """What Temporal's own configuration says: TEMPORAL_* on top of a profile from its file."""
    if settings.config_file is not None and not Path(settings.config_file).is_file():
        raise ConfigError(f"temporal.config_file={settings.config_file!r}: there is no such file.")
    source = None if settings.config_file is None else Path(settings.config_file)
    try:
        own = ClientConfigProfile.load(
            settings.profile, config_source=source, override_env_vars=dict(settings.environment)
        )
    except Exception as error:  # the SDK's own errors are of no public type
        # Only the first line: the others quote the file, which may hold an API key.
        said = str(error).partition("\n")[0]
        raise ConfigError(f"Temporal's own configuration cannot be read: {said}.") from None
    if address is not None and own.address is not None and own.address != address:
        return ClientConfigProfile(namespace=own.namespace)
    return own


def _tls(settings: TemporalSettings, own: ClientConfigTLS, *, keyed: bool) -> bool | TLSConfig:
    names = {
        "server_root_ca": _file(settings.server_root_ca) or own.server_root_ca_cert,
        "client_cert": _file(settings.client_cert) or own.client_cert,
        "client_key": _file(settings.client_key) or own.client_private_key,
    }
    if (names["client_cert"] is None) != (names["client_key"] is None):
        missing = "client_key" if names["client_key"] is None else "client_cert"
        raise ConfigError(f"mutual TLS needs both a certificate and its key: temporal.{missing} is missing.")
    wanted = settings.tls
    if wanted is None and own.disabled is not None:
        wanted = not own.disabled
    given = sorted(name for name, source in names.items() if source is not None)
    if wanted is False:
        if given and settings.tls is False:
            raise ConfigError(f"tls is false, and there is temporal.{given[0]}: leave one of them away.")
        return False
    server_name = settings.tls_server_name or own.server_name
    if not (wanted or keyed or given or server_name):
        return False
    read = {name: _contents(source, name) for name, source in names.items()}
    return TLSConfig(read["server_root_ca"], server_name, read["client_cert"], read["client_key"])


def _file(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _contents(source: Path | str | bytes | None, name: str) -> bytes | None:
    """A file's contents; Temporal's configuration may also hold the data itself."""
    if isinstance(source, str):
        return source.encode()
    if not isinstance(source, Path):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise ConfigError(f"temporal.{name}: {source} cannot be read: {error.strerror}.") from None


def _loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def connect(target: Target, *, lazy: bool = False) -> Client:
    """A client for one event loop. EngineUnavailable: nobody answers there; EngineError: we are not let in.

    A `lazy` one connects with its first call, and raises nothing here: see `unreachable`.
    """
    _end_in_peace()
    try:
        return await Client.connect(
            target.address,
            namespace=target.namespace,
            api_key=target.api_key,
            tls=target.tls,
            rpc_metadata=target.metadata,
            data_converter=converter(target.codec),
            interceptors=target.interceptors,
            runtime=metered(target.metrics),
            connect_timeout=CONNECT_WITHIN,
            lazy=lazy,
        )
    except RuntimeError as error:  # the SDK's way to say that it could not connect
        raise unreachable(target, error) from None


@functools.cache
def _end_in_peace() -> None:
    """Threads of the SDK that come back to Python while it ends bring the process down (temporalio/sdk-python#300)."""
    atexit.register(time.sleep, PAUSE)


def converter(codec: PayloadCodec | None) -> DataConverter:
    """Temporal's own; with a codec, messages and stack traces of failures go through it too."""
    if codec is None:
        return DataConverter.default
    return DataConverter(payload_codec=codec, failure_converter_class=DefaultFailureConverterWithEncodedAttributes)


def unreachable(target: Target, error: RuntimeError) -> EngineError:
    """What it means that the SDK could not connect; a lazy client raises such an error in any of its calls."""
    said = str(error)
    if any(word in said for word in REFUSED):
        return EngineError(
            f"the Temporal server at {target.address} does not let us in. Look at the API key or the certificates: "
            "SEMEL_TEMPORAL_*, [temporal] in semel.toml, TEMPORAL_*."
        )
    how = "with TLS" if target.tls else "without TLS"
    return EngineUnavailable(
        f"the Temporal server at {target.address} cannot be reached {how}: {_reason(said)}. "
        "Is the address right, and does it want TLS? A server for development: semel temporal dev"
    )


def _reason(said: str) -> str:
    """The core of what the SDK says, without its wrappings."""
    if status := re.search(r'code: (\w+), message: "([^"]*)"', said):
        return f"{status[1]}, {status[2]}"
    if found := re.search(r"InvalidCertificate\((\w+)\)", said):
        return f"its certificate is not accepted ({found[1]})"
    known = ("Connection refused", "dns error", "InvalidContentType", "timed out", "Timeout")
    return next((word.lower() for word in known if word in said), said.partition("\n")[0][:200].rstrip(". "))


_runtimes: Final[dict[str | None, Runtime]] = {}
_of_parent: Final[list[Runtime]] = []
"""Runtimes that were inherited by a fork: their threads are not there, and ending them would wait for these."""
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


def _forget_runtimes() -> None:
    _of_parent.extend(_runtimes.values())
    _runtimes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_runtimes)
