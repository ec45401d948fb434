"""Exit codes mean something, and an error is one clear line on stderr."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import semel as library
from bench.server import Postgres
from semel.cli.command import Exit, code_of
from tests.cli.shell import semel
from tests.world import World


def test_help_lists_every_command_and_the_exit_codes() -> None:
    told = semel("--help").out
    for command in ("demo", "worker", "migrate", "enqueue", "list", "show", "explain", "cancel", "redrive", "queues"):
        assert f" {command} " in told
    assert "Exit codes:" in told
    assert "4  conflict" in told


def test_version_as_a_module_too() -> None:
    wanted = f"semel {library.__version__}\n"
    assert semel("--version").out == wanted
    told = subprocess.run([sys.executable, "-m", "semel", "--version"], capture_output=True, text=True)
    assert (told.stdout, told.returncode) == (wanted, 0)


def test_unknown_command_or_option_is_usage() -> None:
    assert semel("lst").code == 2
    assert semel("list", "--status", "gone").code == 2
    assert semel("list", "--limit", "0").code == 2


def test_not_found(world: World) -> None:
    semel("migrate", "--url", world.url)
    for command in (("show", "abc"), ("cancel", "abc"), ("redrive", "abc"), ("explain", "abc")):
        assert semel(*command, "--url", world.url).code == 3, command


def test_a_mistyped_file_makes_no_database(tmp_path: Path) -> None:
    told = semel("list", "--url", f"sqlite:///{tmp_path}/typo.db")
    assert (told.code, "semel migrate" in told.err, list(tmp_path.iterdir())) == (5, True, [])


def test_postgres_without_tables_wants_migrate(postgres_server: Postgres) -> None:
    postgres_server.sql("create database cli_empty")
    url = postgres_server.url("cli_empty")
    told = semel("list", "--url", url)
    assert (told.code, "semel migrate" in told.err) == (5, True)
    assert semel("doctor", "--url", url).code == 1
    assert "applied 0001_" in semel("migrate", "--url", url).out
    assert semel("list", "--url", url).code == 0


@pytest.mark.slow
def test_an_unreachable_database_is_unavailable() -> None:
    told = semel("list", "--url", "postgresql://semel:secret@127.0.0.1:1/none")
    assert (told.code, "secret" in told.err) == (5, False)


def test_a_bad_url_or_settings_file_is_usage(tmp_path: Path) -> None:
    assert semel("list", "--url", "mysql://x").code == 2
    assert semel("list", "--config", str(tmp_path / "none.toml")).code == 2
    (tmp_path / "bad.toml").write_text("nonsense = 1")
    assert semel("list", "--config", str(tmp_path / "bad.toml")).code == 2


def test_debug_shows_where_it_came_from(tmp_path: Path) -> None:
    with pytest.raises(library.EngineUnavailable):
        semel("list", "--debug", "--url", f"sqlite:///{tmp_path}/typo.db")


def test_every_error_has_a_code() -> None:
    assert code_of(library.NotFound("x")) is Exit.NOT_FOUND
    assert code_of(library.SchemaTooNew("x")) is Exit.UNAVAILABLE
    assert code_of(library.ExecutionCancelled("x", execution_id="1")) is Exit.FAILED
    assert code_of(library.DefinitionError("x")) is Exit.USAGE
