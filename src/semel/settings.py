"""The only reader of the environment and of `semel.toml`. One validated struct; unknown keys are errors."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from semel.contract.durations import Duration, parse_duration
from semel.contract.keys import check_name
from semel.contract.rates import Rate, parse_rate
from semel.errors import ConfigError, InvalidValue, phrase

DEFAULT_URL = "sqlite:///semel.db"
SQLITE_DRIVERS = ("auto", "sqlite3", "apsw")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What can be set for a queue. None: as others have set it, or the default, which is no limit.

    A rate limit of "none" and a concurrency of 0 lift limits that were set before.
    """

    retention: timedelta | None = None
    dedup_window: timedelta | None = None
    rate_limit: Rate | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How workers behave."""

    concurrency: int = 100
    lease: timedelta = timedelta(seconds=30)
    """A worker that is silent for this long is taken for dead, and its tasks run elsewhere."""
    grace: timedelta = timedelta(seconds=30)
    """How long running tasks may take to finish after the first SIGTERM."""
    clean_every: timedelta = timedelta(hours=1)
    cached_workflows: int = 1000
    """How many waiting workflows are kept in memory; the others are read from their journal when they go on."""
    decode_timeout: timedelta = timedelta(minutes=10)
    """How long a task whose input no worker can decode is left for one that can, before it fails."""


@dataclass(frozen=True, slots=True)
class TemporalSettings:
    """How to reach a Temporal server. None: as Temporal's own configuration says. Secrets show in no repr."""

    tls: bool | None = None
    """None: on if there is an API key or a certificate."""
    tls_server_name: str | None = None
    server_root_ca: str | None = None
    """A file, as are the client's certificate and its key."""
    client_cert: str | None = None
    client_key: str | None = None
    api_key: str | None = field(default=None, repr=False)
    profile: str | None = None
    config_file: str | None = None
    metrics: str | None = None
    """Where to show the metrics of the SDK to Prometheus."""
    deployment: str | None = None
    """The deployment that workers are part of; with it they are versioned by their build."""
    build_id: str | None = None
    versioning: str = "auto_upgrade"
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Temporal's own variables, TEMPORAL_*, as they were found."""


TEMPORAL_VARIABLES = {
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
    """The database beside a Temporal cluster, for what the cluster does not keep."""
    sqlite_driver: str = "auto"
    """The SQLite library to use: Python's own `sqlite3`, or apsw. "auto": apsw only where the own one is too old."""
    max_payload: int = 1 << 20
    auto_migrate: bool = False
    queues: Mapping[str, QueueSettings] = field(default_factory=dict)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    temporal: TemporalSettings = field(default_factory=TemporalSettings)

    def with_queue(self, name: str, values: Mapping[str, Any]) -> Settings:
        """A copy in which a queue has these settings on top of what it had."""
        old = self.queues.get(name, QueueSettings())
        return replace(self, queues={**self.queues, check_name(name, "queue"): read_queue(name, values, old)})


def load(config: str | os.PathLike[str] | None, env: Mapping[str, str] = os.environ) -> Settings:
    """semel.toml, then the variables SEMEL_* on top. A missing default file is fine; a named one is not."""
    settings = Settings()
    if config is not None:
        path = Path(config)
        if path.exists():
            settings = _read_file(path)
        elif path.name != "semel.toml" or path.parent != Path():
            raise ConfigError(f"config={str(config)!r}: there is no such file.")
    variables = {"SEMEL_URL": "url", "SEMEL_NAMESPACE": "namespace", "SEMEL_RECORDS": "records"}
    variables["SEMEL_SQLITE_DRIVER"] = "sqlite_driver"
    overrides: dict[str, Any] = {setting: env[name] for name, setting in variables.items() if env.get(name)}
    if "sqlite_driver" in overrides:
        known_driver(overrides["sqlite_driver"], "SEMEL_SQLITE_DRIVER")
    return replace(settings, **overrides, temporal=_temporal_variables(env, settings.temporal))


def _temporal_variables(env: Mapping[str, str], old: TemporalSettings) -> TemporalSettings:
    prefix = "SEMEL_TEMPORAL_"
    known_keys([name for name in env if name.startswith(prefix)], TEMPORAL_VARIABLES, "variable")
    found: dict[str, Any] = {setting: env[name] for name, setting in TEMPORAL_VARIABLES.items() if env.get(name)}
    if "tls" in found:
        found["tls"] = truth(found["tls"], "SEMEL_TEMPORAL_TLS")
    own = {name: value for name, value in env.items() if name.startswith("TEMPORAL_")}
    return replace(read_temporal(found, old), environment=own)


def _read_file(path: Path) -> Settings:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {phrase(error)}.") from error
    try:
        return read_settings(table)
    except (InvalidValue, ConfigError) as error:
        raise ConfigError(f"{path}: {error.message}") from error


def read_settings(table: Mapping[str, Any]) -> Settings:
    """Validate the contents of a semel.toml."""
    known_keys(table, (f.name for f in fields(Settings)), "setting")
    values: dict[str, Any] = {}
    for name in ("url", "namespace", "records", "sqlite_driver"):
        if name in table:
            values[name] = _typed(table, name, str, name)
    if "sqlite_driver" in table:
        known_driver(table["sqlite_driver"], "sqlite_driver")
    if "max_payload" in table:
        values["max_payload"] = positive(table["max_payload"], "max_payload")
    if "auto_migrate" in table:
        values["auto_migrate"] = _typed(table, "auto_migrate", bool, "auto_migrate")
    if "worker" in table:
        values["worker"] = read_worker(_typed(table, "worker", dict, "worker"))
    if "temporal" in table:
        values["temporal"] = read_temporal(_typed(table, "temporal", dict, "temporal"))
    queues = {}
    for name, entry in _typed(table, "queues", dict, "queues", {}).items():
        if not isinstance(entry, dict):
            raise ConfigError(f"queues.{name} is {entry!r}: write a table, [queues.{name}].")
        queues[check_name(name, "queue")] = read_queue(name, entry, QueueSettings())
    return Settings(**values, queues=queues)


def read_queue(name: str, table: Mapping[str, Any], old: QueueSettings) -> QueueSettings:
    """Validate the settings of one queue."""
    known_keys(table, (f.name for f in fields(QueueSettings)), f"setting of queue {name!r}")
    new: dict[str, Any] = {}
    for key in ("retention", "dedup_window"):
        if table.get(key) is not None:
            new[key] = parse_duration(table[key], f"queues.{name}.{key}")
    if table.get("rate_limit") is not None:
        new["rate_limit"] = parse_rate(table["rate_limit"], f"queues.{name}.rate_limit")
    if table.get("concurrency") is not None:
        new["concurrency"] = positive(table["concurrency"], f"queues.{name}.concurrency", least=0)
    return replace(old, **new)


def read_worker(table: Mapping[str, Any], old: WorkerSettings | None = None) -> WorkerSettings:
    """Validate worker settings; None leaves a value as it was."""
    known_keys(table, (f.name for f in fields(WorkerSettings)), "setting of [worker]")
    new: dict[str, Any] = {}
    for key in ("lease", "grace", "clean_every", "decode_timeout"):
        if table.get(key) is not None:
            new[key] = parse_duration(table[key], f"worker.{key}")
    if table.get("concurrency") is not None:
        new["concurrency"] = positive(table["concurrency"], "worker.concurrency")
    if table.get("cached_workflows") is not None:
        new["cached_workflows"] = positive(table["cached_workflows"], "worker.cached_workflows", least=0)
    settings = replace(old or WorkerSettings(), **new)
    if settings.lease < timedelta(milliseconds=300):
        raise InvalidValue(f"worker.lease={table.get('lease')!r}: give at least '300ms'.")
    return settings


def read_temporal(table: Mapping[str, Any], old: TemporalSettings | None = None) -> TemporalSettings:
    """Validate how to reach a Temporal server. What is wrong is named, and never shown: it may be a secret."""
    known_keys(table, TEMPORAL_VARIABLES.values(), "setting of [temporal]")
    for key, value in table.items():
        kind = bool if key == "tls" else str
        if not isinstance(value, kind):
            raise ConfigError(f"temporal.{key} is a {type(value).__name__}: give a {kind.__name__}.")
    if table.get("versioning", "pinned") not in ("pinned", "auto_upgrade"):
        raise ConfigError("temporal.versioning: write 'pinned' or 'auto_upgrade'.")
    return replace(old or TemporalSettings(), **table)


def truth(value: str, what: str) -> bool:
    """'true' or 'false', as URLs and variables write it."""
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"{what}={value!r}: write true or false.")
    return value.lower() == "true"


def known_driver(value: str, what: str) -> None:
    """Refuse what is no driver for SQLite."""
    if value not in SQLITE_DRIVERS:
        raise ConfigError(f"{what}={value!r}: write one of {', '.join(SQLITE_DRIVERS)}.")


def positive(value: Any, what: str, least: int = 1) -> int:
    """A whole number from 1 up, or from another least one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidValue(f"{what}={value!r}: give a whole number from {least} up.")
    return value


def known_keys(table: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse a key that is not known, with the nearest one that is."""
    names = sorted(known)
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names)}."
            raise ConfigError(f"unknown {what}: {key!r}. {hint}")


def _typed(table: Mapping[str, Any], key: str, kind: type, what: str, default: Any = None) -> Any:
    value = table.get(key, default)
    if not isinstance(value, kind):
        raise ConfigError(f"{what} is {value!r}: give a {kind.__name__}.")
    return value


def optional_duration(value: Duration | None, what: str) -> timedelta | None:
    """A duration, or None."""
    return None if value is None else parse_duration(value, what)
