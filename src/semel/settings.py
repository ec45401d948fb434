"""The only reader of the environment and of `semel.toml`. One validated struct; unknown keys are errors."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from semel.codec import converter_of
from semel.contract.durations import Duration, format_duration, parse_duration
from semel.contract.keys import check_name
from semel.contract.rates import Rate, parse_rate
from semel.errors import ConfigError, InvalidValue, phrase

DEFAULT_URL = "sqlite:///semel.db"
SHORTEST_LEASE: Final = timedelta(milliseconds=300)
SHORTEST_TIMEOUT: Final = timedelta(seconds=1)

Lease = Annotated[timedelta, "lease"]
Timeout = Annotated[timedelta, "timeout"]
Count = Annotated[int, msgspec.Meta(ge=1)]
CountOrZero = Annotated[int, msgspec.Meta(ge=0)]
SqliteDriver = Literal["auto", "sqlite3", "apsw"]
Versioning = Literal["pinned", "auto_upgrade"]


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue. None keeps what was set before; a queue that was never set up has no limits.

    A rate limit of "none" and a concurrency of 0 lift limits that were set before.
    """

    retention: timedelta | None = None
    dedup_window: timedelta | None = None
    rate_limit: Rate | None = None
    concurrency: CountOrZero | None = None


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How workers behave."""

    concurrency: Count = 100
    lease: Lease = timedelta(seconds=30)
    """A worker that sends no heartbeat for this long is considered dead, and other workers run its tasks."""
    grace: timedelta = timedelta(seconds=30)
    """How long running tasks may take to finish after the first SIGTERM."""
    clean_every: timedelta = timedelta(hours=1)
    cached_workflows: CountOrZero = 1000
    """How many waiting workflows stay in memory; the others are read from their journal when they continue."""
    decode_timeout: timedelta = timedelta(minutes=10)
    """How long a task whose input cannot be decoded waits for a worker that can decode it, before it fails."""
    schedules: bool = True
    """Whether a worker starts the runs of schedules. It runs them in any case."""


@dataclass(frozen=True, slots=True)
class TemporalSettings:
    """How to connect to a Temporal server. None: Temporal's own configuration decides. Secrets are left out of repr."""

    tls: bool | None = None
    """None: on if an API key or a certificate is given."""
    tls_server_name: str | None = None
    server_root_ca: str | None = None
    """A file, like the client's certificate and its key."""
    client_cert: str | None = None
    client_key: str | None = None
    api_key: str | None = field(default=None, repr=False)
    profile: str | None = None
    config_file: str | None = None
    metrics: str | None = None
    """The address at which Prometheus can read the SDK's metrics."""
    deployment: str | None = None
    """The deployment that workers belong to; with it, workers are versioned by their build."""
    build_id: str | None = None
    versioning: Versioning = "auto_upgrade"
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The TEMPORAL_* environment variables."""


VARIABLES: Final = {
    "SEMEL_URL": "url",
    "SEMEL_NAMESPACE": "namespace",
    "SEMEL_RECORDS": "records",
    "SEMEL_OUTBOX": "outbox",
    "SEMEL_SQLITE_DRIVER": "sqlite_driver",
}
TEMPORAL_VARIABLES: Final = {
    "SEMEL_TEMPORAL_TLS": "tls",
    "SEMEL_TEMPORAL_TLS_SERVER_NAME": "tls_server_name",
    "SEMEL_TEMPORAL_SERVER_ROOT_CA": "server_root_ca",
    "SEMEL_TEMPORAL_CLIENT_CERT": "client_cert",
    "SEMEL_TEMPORAL_CLIENT_KEY": "client_key",
    "SEMEL_TEMPORAL_API_KEY": "api_key",
    "SEMEL_TEMPORAL_PROFILE": "profile",
    "SEMEL_TEMPORAL_CONFIG_FILE": "config_file",
    "SEMEL_TEMPORAL_METRICS": "metrics",
    "SEMEL_TEMPORAL_DEPLOYMENT": "deployment",
    "SEMEL_TEMPORAL_BUILD_ID": "build_id",
    "SEMEL_TEMPORAL_VERSIONING": "versioning",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be configured, with its default."""

    url: str = DEFAULT_URL
    namespace: str = "default"
    records: str | None = None
    """A database beside a Temporal cluster, for what the cluster does not keep."""
    outbox: str | None = None
    """The database with the outbox that relays of this app serve, where it is not the engine's own."""
    sqlite_driver: SqliteDriver = "auto"
    """The SQLite library: Python's own `sqlite3`, or apsw. "auto": apsw only if Python's own library is too old."""
    max_payload: Count = 1 << 20
    call_timeout: Timeout = timedelta(seconds=30)
    """How long a call waits for an answer of the database or the cluster, unless it has a timeout of its own."""
    run_retention: timedelta = timedelta(days=90)
    """How long it is on record which slots of schedules ran, and why others did not."""
    event_retention: timedelta = timedelta(days=30)
    """How long events are kept: within it, a second delivery does not count."""
    auto_migrate: bool = False
    queues: Mapping[str, QueueSettings] = field(default_factory=dict)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    temporal: TemporalSettings = field(default_factory=TemporalSettings)

    def with_queue(self, name: str, values: Mapping[str, Any]) -> Settings:
        """A copy with these settings of one queue; None keeps the value that the queue had."""
        old = self.queues.get(check_name(name, "queue"), QueueSettings())
        return replace(self, queues={**self.queues, name: _read_table(old, values, f"queues.{name}")})


T = TypeVar("T", Settings, QueueSettings, WorkerSettings, TemporalSettings)


def load(config: str | os.PathLike[str] | None, env: Mapping[str, str] = os.environ) -> Settings:
    """Read semel.toml, then the SEMEL_* variables, which win. Only the default file may be missing."""
    settings = Settings()
    if config is not None:
        path = Path(config)
        if path.exists():
            settings = _read_file(path)
        elif path.name != "semel.toml" or path.parent != Path():
            raise ConfigError(f"config={str(config)!r}: there is no such file.")
    prefix = "SEMEL_TEMPORAL_"
    known_keys([name for name in env if name.startswith(prefix)], TEMPORAL_VARIABLES, "variable")
    _refuse_misspelt(env)
    temporal = _read_variables(settings.temporal, env, TEMPORAL_VARIABLES)
    own = {name: value for name, value in env.items() if name.startswith("TEMPORAL_")}
    return replace(_read_variables(settings, env, VARIABLES), temporal=replace(temporal, environment=own))


def _refuse_misspelt(env: Mapping[str, str]) -> None:
    """Other SEMEL_* variables may be a program's own, but one that looks like a misspelt setting is refused."""
    for name in env:
        if name.startswith("SEMEL_") and not name.startswith("SEMEL_TEMPORAL_") and name not in VARIABLES:
            near = difflib.get_close_matches(name, VARIABLES, 1, cutoff=0.85)
            if near:
                raise ConfigError(f"unknown variable: {name!r}. Did you mean {near[0]!r}?")


def _read_file(path: Path) -> Settings:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {phrase(error)}.") from error
    try:
        return read_settings(table)
    except (InvalidValue, ConfigError) as error:
        raise ConfigError(f"{path}: {error.message}") from error


def _read_variables(old: T, env: Mapping[str, str], variables: Mapping[str, str]) -> T:
    """Apply environment variables to settings; an empty variable counts as unset."""
    kinds = _field_types(type(old))
    secret = isinstance(old, TemporalSettings)
    new = {}
    for variable, name in variables.items():
        if text := env.get(variable):
            value = parse_bool(text, variable) if kinds[name] is bool else text
            try:
                new[name] = _read_value(kinds[name], value, variable, secret=secret)
            except InvalidValue as error:
                raise ConfigError(error.message) from error
    return replace(old, **new)


def read_settings(table: Mapping[str, Any]) -> Settings:
    """Validate the contents of a semel.toml."""
    return _read_table(Settings(), table, "")


def read_worker(table: Mapping[str, Any], old: WorkerSettings | None = None) -> WorkerSettings:
    """Validate worker settings; None keeps the old value."""
    return _read_table(old or WorkerSettings(), table, "worker")


def _read_table(old: T, table: Mapping[str, Any], where: str) -> T:
    """Validate a table of settings on top of old ones; None keeps the old value."""
    kinds = _field_types(type(old))
    known_keys(table, kinds, f"setting in [{where}]" if where else "setting")
    prefix = f"{where}." if where else ""
    secret = isinstance(old, TemporalSettings)
    new = {
        name: _read_value(kinds[name], value, prefix + name, secret=secret)
        for name, value in table.items()
        if value is not None
    }
    return replace(old, **new)


def _read_value(kind: Any, value: Any, what: str, *, secret: bool) -> Any:
    """Validate one setting. The error names it, its value unless that may be a secret, and what is allowed."""
    if kind in _PARSERS:
        return _PARSERS[kind](value, what)
    if kind in _SECTIONS:
        return _read_table(kind(), _table(value, what), what)
    if kind == Mapping[str, QueueSettings]:
        return _read_queues(_table(value, what))
    try:
        return _CONVERTERS[kind](value)
    except msgspec.ValidationError:
        shown = what if secret else f"{what}={value!r}"
        raise InvalidValue(f"{shown}: use {_describe(kind)}.") from None


def _read_queues(table: Mapping[str, Any]) -> dict[str, QueueSettings]:
    return {
        check_name(name, "queue"): _read_table(QueueSettings(), _table(entry, f"queues.{name}"), f"queues.{name}")
        for name, entry in table.items()
    }


def _table(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidValue(f"{what}={value!r}: write a table, [{what}].")
    return value


def _read_at_least(shortest: timedelta) -> Callable[[Duration, str], timedelta]:
    """A reader of durations that are not shorter than that."""

    def read(value: Duration, what: str) -> timedelta:
        duration = parse_duration(value, what)
        if duration < shortest:
            raise InvalidValue(f"{what}={value!r}: use at least {format_duration(shortest)!r}.")
        return duration

    return read


_PARSERS: Final[Mapping[Any, Callable[[Any, str], Any]]] = {
    timedelta: parse_duration,
    Lease: _read_at_least(SHORTEST_LEASE),
    Timeout: _read_at_least(SHORTEST_TIMEOUT),
    Rate: parse_rate,
}
"""Types of settings that are written in a form of their own."""
_CONVERTERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    kind: converter_of(kind) for kind in (str, bool, Count, CountOrZero, SqliteDriver, Versioning)
}
_SECTIONS: Final = (WorkerSettings, TemporalSettings)


def _field_types(kind: type) -> dict[str, Any]:
    """The settings that a file can have, with the type of each, without `None`."""
    hints = get_type_hints(kind, include_extras=True)
    hints.pop("environment", None)
    return {name: _without_none(hint) for name, hint in hints.items()}


def _without_none(hint: Any) -> Any:
    members = [member for member in get_args(hint) if member is not NoneType]
    return members[0] if NoneType in get_args(hint) else hint


def _describe(kind: Any) -> str:
    """What is allowed, in words."""
    if kind is Count:
        return "a whole number, 1 or more"
    if kind is CountOrZero:
        return "a whole number, 0 or more"
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return {str: "text in quotes", bool: "true or false"}[kind]


def parse_bool(value: str, what: str) -> bool:
    """Read 'true' or 'false', as URLs and environment variables write it."""
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"{what}={value!r}: use true or false.")
    return value.lower() == "true"


def known_keys(table: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse an unknown key, and suggest the nearest known one."""
    names = sorted(known)
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known are: {', '.join(names)}."
            raise ConfigError(f"unknown {what}: {key!r}. {hint}")


def optional_duration(value: Duration | None, what: str) -> timedelta | None:
    """Read a duration, or None."""
    return None if value is None else parse_duration(value, what)
