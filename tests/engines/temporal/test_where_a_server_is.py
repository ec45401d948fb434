"""From URL, settings and Temporal's own configuration to a server: the first that says something counts."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import TLSConfig

import semel
from semel.engines.temporal import url
from semel.engines.temporal.connect import Target, parse
from semel.engines.temporal.url import located
from semel.errors import ConfigError, InputError
from semel.settings import Settings, TemporalSettings, load

SECRET = "sk-very-secret"


def where(url: str, **settings: Any) -> Target:
    return parse(url, TemporalSettings(**settings))


@pytest.mark.parametrize(
    ("url", "address", "namespace"),
    [
        ("temporal://host:7000/shop", "host:7000", "shop"),
        ("temporal://host/shop", "host:7233", "shop"),
        ("temporal://host", "host:7233", "default"),
        ("temporal://host/", "host:7233", "default"),
        ("temporal://[::1]:7000/a.b-c", "[::1]:7000", "a.b-c"),
        ("temporal://[::1]", "[::1]:7233", "default"),
        ("temporal://", "127.0.0.1:7233", "default"),
        ("temporal:///shop", "127.0.0.1:7233", "shop"),
    ],
)
def test_a_url_names_server_and_namespace(url: str, address: str, namespace: str) -> None:
    assert where(url) == Target(address, namespace)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("temporal:host", "Write temporal://host:7233/namespace"),
        ("temporal://host:many", "port in 'host:many'"),
        ("temporal://:7233/a", "a port and no host"),
        ("temporal://ann:pw@host", "no user and no password"),
        ("temporal://host/a/b", "namespace='a/b'"),
        ("temporal://host?tsl=true", "Did you mean 'tls'?"),
        ("temporal://host?colour=red", "Known are: profile, tls, tls_server_name"),
        ("temporal://host?tls=yes", "tls='yes': use true or false"),
        (f"temporal://host?api_key={SECRET}", "set SEMEL_TEMPORAL_API_KEY"),
        ("temporal://host?profile=nope", "Profile 'nope' not found"),
    ],
)
def test_a_url_that_says_something_else_is_refused(url: str, message: str) -> None:
    with pytest.raises((ConfigError, InputError)) as caught:
        where(url)
    assert message in caught.value.message
    assert SECRET not in str(caught.value)


def test_temporals_own_variables_fill_what_nothing_else_says() -> None:
    own = {"TEMPORAL_ADDRESS": "cloud:7233", "TEMPORAL_NAMESPACE": "theirs", "TEMPORAL_API_KEY": SECRET}
    found = where("temporal://", environment=own)
    assert (found.address, found.namespace, found.api_key) == ("cloud:7233", "theirs", SECRET)
    assert isinstance(found.tls, TLSConfig)
    assert where("temporal:///ours", environment=own).namespace == "ours"
    assert where("temporal://", environment=own, api_key="mine").api_key == "mine"


def test_credentials_of_temporals_variables_go_only_where_these_point() -> None:
    own = {"TEMPORAL_ADDRESS": "cloud:7233", "TEMPORAL_API_KEY": SECRET, "TEMPORAL_GRPC_META_X": "y"}
    assert where("temporal://127.0.0.1", environment=own) == Target("127.0.0.1:7233", "default")
    assert where("temporal://cloud", environment=own).metadata == {"x": "y"}
    assert where("temporal://cloud", environment={"TEMPORAL_API_KEY": SECRET}).api_key == SECRET


def test_a_profile_comes_from_temporals_own_file(tmp_path: Path) -> None:
    file = tmp_path / "temporal.toml"
    file.write_text('[profile.eu]\naddress = "eu:7233"\nnamespace = "shop"\n')
    assert where("temporal://?profile=eu", config_file=str(file)) == Target("eu:7233", "shop")
    with pytest.raises(ConfigError, match="there is no such file"):
        where("temporal://", config_file=str(tmp_path / "none.toml"))
    file.write_text(f'[profile.default]\napi_key = "{SECRET}')
    with pytest.raises(ConfigError, match=r"cannot be read: .*line 2") as caught:
        where("temporal://", config_file=str(file))
    assert SECRET not in str(caught.value)


def test_certificates_are_files(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    files = {"client_cert": str(tmp_path / "cert"), "client_key": str(tmp_path / "key")}
    found = where("temporal://host?tls_server_name=n", server_root_ca=str(tmp_path / "ca"), **files)
    assert found.tls == TLSConfig(b"ca", "n", b"cert", b"key")
    with pytest.raises(ConfigError, match=r"temporal\.client_key is missing"):
        where("temporal://host", client_cert=files["client_cert"])
    with pytest.raises(ConfigError, match=r"temporal\.server_root_ca: .*none cannot be read: No such file"):
        where("temporal://host", server_root_ca=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"tls is false, and there is temporal\.client_cert"):
        where("temporal://host?tls=false", **files)
    assert where("temporal://host?tls=true").tls == TLSConfig()


def test_an_api_key_is_never_sent_in_the_clear() -> None:
    assert isinstance(where("temporal://host", api_key=SECRET).tls, TLSConfig)
    with pytest.raises(ConfigError, match="in the clear"):
        where("temporal://host?tls=false", api_key=SECRET)
    assert where("temporal://127.0.0.1?tls=false", api_key=SECRET).tls is False


def test_secrets_show_in_no_repr(tmp_path: Path) -> None:
    (tmp_path / "pem").write_text(SECRET)
    pem = str(tmp_path / "pem")
    settings = TemporalSettings(client_cert=pem, client_key=pem, api_key=SECRET, environment={"TEMPORAL_X": SECRET})
    assert SECRET not in repr(Settings(temporal=settings))
    assert SECRET not in repr(parse("temporal://host", settings))


def test_variables_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "semel.toml"
    file.write_text('records = "sqlite:///r.db"\n[temporal]\ntls = true\napi_key = "of-file"\nprofile = "eu"\n')
    env = {
        "SEMEL_TEMPORAL_TLS": "false", "SEMEL_TEMPORAL_API_KEY": "of-env", "SEMEL_RECORDS": "sqlite:///e.db",
        "TEMPORAL_TLS": "true",
    }  # fmt: skip
    found = load(file, env)
    assert found.temporal == TemporalSettings(
        tls=False, api_key="of-env", profile="eu", environment={"TEMPORAL_TLS": "true"}
    )
    assert (found.records, load(file, {}).records) == ("sqlite:///e.db", "sqlite:///r.db")
    with pytest.raises(ConfigError, match=r"unknown variable: 'SEMEL_TEMPORAL_APIKEY'. Did you mean"):
        load(None, {"SEMEL_TEMPORAL_APIKEY": SECRET})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("api_key = 5", "temporal.api_key: use text in quotes"),
        ('tls = "true"', "temporal.tls: use true or false"),
        ("tsl = true", "unknown setting in [temporal]: 'tsl'. Did you mean 'tls'?"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "semel.toml"
    file.write_text(f"[temporal]\n{line}")
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert message in caught.value.message


def test_one_namespace_is_meant() -> None:
    at = Settings(url="temporal://host/shop")
    assert located(at, None).namespace == "shop"
    assert located(at, "other").namespace == "other"
    assert located(replace(at, namespace="shop"), None).namespace == "shop"
    with pytest.raises(ConfigError, match=r"says namespace 'shop', and the setting `namespace` .* says 'store'"):
        located(replace(at, namespace="store"), None)
    assert located(Settings(url="temporal://host", namespace="store"), None).namespace == "store"
    own = TemporalSettings(environment={"TEMPORAL_NAMESPACE": "theirs"})
    assert located(Settings(url="temporal://host", temporal=own), None).namespace == "theirs"


def test_records_are_for_temporal_only() -> None:
    with pytest.raises(ConfigError, match="records= is for Temporal"):
        semel.App("sqlite:///:memory:", records="sqlite:///r.db", config=None)
    with pytest.raises(ConfigError, match=r"give sqlite:///records\.db or postgresql://"):
        located(Settings(url="temporal://host", records="redis://ann:pw@host"), None)
    assert located(Settings(url="temporal://host", records="sqlite:///r.db"), None).records == "sqlite:///r.db"


def test_records_in_the_environment_do_not_concern_an_app_with_another_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMEL_RECORDS", "sqlite:///r.db")
    assert semel.App("sqlite:///:memory:", config=None).settings.records is None
    assert semel.App("temporal://host", config=None).settings.records == "sqlite:///r.db"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'semel\[temporal\]'"):
        located(Settings(url="temporal://host"), None)


def test_nobody_else_pays_for_the_extra() -> None:
    code = "import semel.cli, sys; semel.App('sqlite:///:memory:', config=None); print('temporalio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
