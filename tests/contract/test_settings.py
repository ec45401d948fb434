"""Settings: one validated struct, errors that name the culprit."""

from datetime import timedelta
from pathlib import Path

import pytest

import semel
from semel.contract.rates import Rate
from semel.errors import ConfigError, InvalidValue, SemelError
from semel.settings import QueueSettings, Settings, load, read_settings, read_worker

WHOLE = """
url = "sqlite:///jobs.db"
namespace = "shop"
max_payload = 1000
auto_migrate = true

[worker]
concurrency = 5
lease = "10s"
grace = "1m"
clean_every = "10m"

[queues.payments]
retention = "30d"
dedup_window = "90d"
rate_limit = "100/sec"
concurrency = 10

[queues.mail]
retention = "0"
"""


def test_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "semel.toml"
    path.write_text(WHOLE)
    settings = load(path, {})
    assert (settings.url, settings.namespace) == ("sqlite:///jobs.db", "shop")
    assert (settings.max_payload, settings.auto_migrate) == (1000, True)
    assert settings.worker.concurrency == 5
    assert settings.worker.lease == timedelta(seconds=10)
    assert settings.worker.grace == timedelta(minutes=1)
    assert settings.worker.clean_every == timedelta(minutes=10)
    assert settings.queues == {
        "payments": QueueSettings(timedelta(days=30), timedelta(days=90), Rate(100, 1), 10),
        "mail": QueueSettings(retention=timedelta(0)),
    }


def test_the_defaults() -> None:
    settings = load(None, {})
    assert settings == Settings()
    assert (settings.url, settings.namespace, settings.max_payload) == ("sqlite:///semel.db", "default", 1 << 20)
    assert settings.worker.lease == timedelta(seconds=30)


def test_the_environment_wins_over_the_file_and_code_over_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "semel.toml"
    path.write_text(WHOLE)
    env = {"SEMEL_URL": "sqlite:///env.db", "SEMEL_NAMESPACE": "env"}
    assert (load(path, env).url, load(path, env).namespace) == ("sqlite:///env.db", "env")
    assert load(path, {"SEMEL_URL": "", "SEMEL_NAMESPACE": ""}).namespace == "shop"
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert semel.App(config=path).settings.url == "sqlite:///env.db"
    app = semel.App("sqlite:///code.db", namespace="code", config=path)
    assert (app.settings.url, app.settings.namespace) == ("sqlite:///code.db", "code")
    assert app.settings.max_payload == 1000


def test_a_missing_file_is_fine_only_under_the_default_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load("semel.toml", {}) == Settings()
    with pytest.raises(ConfigError, match="there is no such file"):
        load("shop.toml", {})
    with pytest.raises(ConfigError, match="there is no such file"):
        load(tmp_path / "semel.toml", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('ulr = "x"', "unknown setting: 'ulr'. Did you mean 'url'?"),
        ('colour = "x"', "unknown setting: 'colour'. Known are: auto_migrate, call_timeout,"),
        ("[worker]\nconcurency = 5", "unknown setting in [worker]: 'concurency'. Did you mean 'concurrency'?"),
        ("[queues.a]\nretension = '1d'", "unknown setting in [queues.a]: 'retension'. Did you mean 'retention'?"),
        ("url = 5", "url=5: use text in quotes"),
        ("auto_migrate = 1", "auto_migrate=1: use true or false"),
        ("max_payload = 0", "max_payload=0: use a whole number, 1 or more"),
        ("max_payload = true", "max_payload=True: use a whole number"),
        ("worker = 1", "worker=1: write a table, [worker]"),
        ("[worker]\nlease = 'soon'", "worker.lease='soon' is not a duration"),
        ("[worker]\nlease = '100ms'", "worker.lease='100ms': use at least '300ms'"),
        ("[worker]\nconcurrency = 0", "worker.concurrency=0: use a whole number, 1 or more"),
        ("queues = 1", "queues=1: write a table, [queues]"),
        ("[queues]\na = 1", "queues.a=1: write a table, [queues.a]"),
        ("[queues.'a b']", "queue='a b': use 1 to 100 letters"),
        ("[queues.a]\nretention = '1x'", "queues.a.retention='1x' is not a duration"),
        ("[queues.a]\ndedup_window = -1", "queues.a.dedup_window=-1 is out of bounds"),
        ("[queues.a]\nrate_limit = '5/eon'", "queues.a.rate_limit='5/eon' is not a rate"),
        ("[queues.a]\nconcurrency = -1", "queues.a.concurrency=-1: use a whole number, 0 or more"),
        ("sqlite_driver = 'lite'", "sqlite_driver='lite': use 'auto' or 'sqlite3' or 'apsw'"),
        ("url = ", "is not valid TOML"),
    ],
)
def test_a_bad_file_names_itself_and_the_culprit(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "semel.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert message in caught.value.message
    assert str(path) in caught.value.message


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="SEMEL_SQLITE_DRIVER='lite': use 'auto' or 'sqlite3' or 'apsw'"):
        load(None, {"SEMEL_SQLITE_DRIVER": "lite"})
    with pytest.raises(ConfigError, match="SEMEL_TEMPORAL_TLS='yes': use true or false"):
        load(None, {"SEMEL_TEMPORAL_TLS": "yes"})
    with pytest.raises(ConfigError, match="SEMEL_TEMPORAL_VERSIONING: use 'pinned' or 'auto_upgrade'") as caught:
        load(None, {"SEMEL_TEMPORAL_VERSIONING": "pined"})
    assert "pined" not in caught.value.message


def test_a_file_that_is_not_utf8_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "semel.toml"
    path.write_bytes(b'url = "\xff"')
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load(path, {})


@pytest.mark.parametrize("namespace", ["", "a b", "a:b", "n" * 101])
def test_a_bad_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(SemelError, match="namespace="):
        semel.App("sqlite:///:memory:", namespace=namespace, config=None)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("sqlit:///a.db", "Did you mean sqlite://?"),
        ("mysql://x", "Use sqlite:///file.db"),
        ("a.db", "Use sqlite:///file.db"),
        ("sqlite://a.db", "write three slashes and a file"),
        ("sqlite:///", "write three slashes and a file"),
    ],
)
def test_a_url_that_cannot_be_opened_says_what_one_looks_like(url: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        semel.App(url, config=None)
    assert hint in caught.value.message


def test_a_password_is_not_told() -> None:
    with pytest.raises(ConfigError) as caught:
        semel.App("mysql://ann:secret@host/db", config=None)
    assert "secret" not in str(caught.value)


def test_settings_in_code_lie_on_top_of_the_file() -> None:
    settings = read_settings({"queues": {"a": {"retention": "1d", "rate_limit": "5/sec"}}})
    changed = settings.with_queue("a", {"retention": "2d", "rate_limit": None})
    assert changed.queues["a"] == QueueSettings(retention=timedelta(days=2), rate_limit=Rate(5, 1))
    assert settings.queues["a"].retention == timedelta(days=1)
    with pytest.raises(InvalidValue, match=r"queues\.b\.concurrency=-1"):
        settings.with_queue("b", {"concurrency": -1})


def test_worker_settings_leave_what_is_not_given() -> None:
    old = read_worker({"concurrency": 7})
    assert read_worker({"concurrency": None, "grace": "1s"}, old).concurrency == 7


def test_a_misspelt_variable_is_refused_and_a_strange_one_is_not_ours() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'SEMEL_NAMESPACE'"):
        load(None, {"SEMEL_NAMSPACE": "shop"})
    assert load(None, {"SEMEL_HOME": "elsewhere"}) == load(None, {})
