"""What a `temporal://` URL says. Needs no Temporal SDK, so that an App without the extra can tell what is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from semel.contract.keys import check_name
from semel.errors import ConfigError
from semel.settings import Settings, known_keys

PORT = 7233
OPTIONS = ("profile", "tls", "tls_server_name")
"""What may stand behind the `?`. Everything else has a place in semel.toml and in the environment."""
LOOKS_LIKE = "Write temporal://host:7233/namespace; temporal:// alone leaves it all to Temporal's own configuration."


@dataclass(frozen=True, slots=True)
class Place:
    """A URL, taken apart. None: it does not say."""

    address: str | None
    namespace: str | None
    options: Mapping[str, str]


def parse_url(url: str) -> Place:
    """Take it apart, or ConfigError that says what one looks like. Nothing that may be a secret is repeated."""
    parts = urlsplit(url)
    if parts.scheme != "temporal" or "://" not in url or parts.fragment:
        raise ConfigError(f"this is no URL of a Temporal server. {LOOKS_LIKE}")
    if "@" in parts.netloc:
        raise ConfigError(
            "a temporal:// URL has no user and no password. Give an API key in SEMEL_TEMPORAL_API_KEY, or certificates "
            "in [temporal] of semel.toml."
        )
    try:
        port = parts.port
    except ValueError:
        raise ConfigError(f"the port in {parts.netloc!r} is none: give a number up to 65535. {LOOKS_LIKE}") from None
    if port is not None and not parts.hostname:
        raise ConfigError(f"{parts.netloc!r} has a port and no host. {LOOKS_LIKE}")
    namespace = unquote(parts.path).strip("/")
    if namespace:
        check_name(namespace, "namespace")
    host = parts.netloc if port is not None else f"{parts.netloc.rstrip(':')}:{PORT}"
    return Place(host if parts.hostname else None, namespace or None, _options(parts.query))


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if "api_key" in options:
        raise ConfigError("an API key has no place in a URL, which ends up in logs: set SEMEL_TEMPORAL_API_KEY.")
    known_keys(options, OPTIONS, "option of a temporal:// URL")
    return options


def located(settings: Settings, namespace: str | None) -> Settings:
    """The same settings, in the namespace that is meant, for any URL. `namespace` is what the App was told.

    On Temporal the URL names it, or the setting `namespace`, or Temporal's own configuration; two of them that do not
    agree are a ConfigError, unless the App was told. A records database makes sense only there.
    """
    if not settings.url.startswith("temporal:"):
        if settings.records is not None:
            raise ConfigError(
                "records= is for Temporal: it keeps what a cluster does not. SQLite and PostgreSQL keep everything "
                "in the database of the URL: leave it away (also SEMEL_RECORDS, and records in semel.toml)."
            )
        return settings
    if importlib.util.find_spec("temporalio") is None:
        raise ConfigError("Temporal needs the extra: pip install 'semel[temporal]'.")
    if settings.records is not None and not settings.records.startswith(("sqlite:///", "postgresql://", "postgres://")):
        raise ConfigError("records= is a database: give sqlite:///records.db or postgresql://user@host/database.")
    from semel.engines.temporal.connect import parse  # needs the SDK

    meant = namespace or _meant(settings, parse_url(settings.url).namespace)
    return replace(settings, namespace=parse(settings.url, settings.temporal, meant).namespace)


def _meant(settings: Settings, of_url: str | None) -> str | None:
    """The namespace of the URL or of the setting; its default counts as not set."""
    of_setting = None if settings.namespace == Settings().namespace else settings.namespace
    if of_url and of_setting and of_url != of_setting:
        raise ConfigError(
            f"the URL says namespace {of_url!r}, and the setting `namespace` (SEMEL_NAMESPACE or semel.toml) says "
            f"{of_setting!r}. Say it in one place, or tell the App: namespace=…."
        )
    return of_url or of_setting
