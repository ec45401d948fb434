"""Every snippet of every page runs, in order, on an empty SQLite database in an empty folder."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from bench.server import Postgres
from semel.settings import read_settings
from semel.testing.temporal_server import TemporalServer
from tests.docs.pages import PAGES, ROOT, Block, blocks, read, short
from tests.faults.forks import Forks

pytestmark = pytest.mark.slow

WITH_PYTHON = [page for page in PAGES if any(block.runs for block in blocks(page))]
ON_POSTGRES = "docs/how-to/postgresql.md"
ON_TEMPORAL = [
    "docs/how-to/add-semel-to-a-temporal-project.md",
    "docs/how-to/encrypt-trace-and-version-on-temporal.md",
]
MOST_THAT_DO_NOT_RUN = 3


def run_page(forks: Forks, page: Path, folder: Path, url: str | None, **more: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])  # the code beside the page
    if url is not None:
        env["SEMEL_URL"] = url
    env |= more
    code, said = forks.run("tests.docs.run_page:run_forked", page=str(page), folder=str(folder), env=env)
    assert code == 0, said


@pytest.mark.parametrize("page", [p for p in WITH_PYTHON if short(p) not in (ON_POSTGRES, *ON_TEMPORAL)], ids=short)
def test_the_snippets_of_a_page_run(page: Path, fork_server: Forks, tmp_path: Path) -> None:
    run_page(fork_server, page, tmp_path, None)


def test_the_snippets_about_postgresql_run_on_postgresql(
    postgres_server: Postgres, fork_server: Forks, tmp_path: Path
) -> None:
    postgres_server.sql("create database docs_page")
    run_page(fork_server, ROOT / ON_POSTGRES, tmp_path, postgres_server.url("docs_page"))


@pytest.mark.parametrize("page", ON_TEMPORAL)
def test_the_snippets_about_temporal_run_on_a_real_server(
    page: str, temporal_server: TemporalServer, fork_server: Forks, tmp_path: Path
) -> None:
    namespace = f"docs-{Path(page).stem}"
    temporal_server.prepare(namespace, "1d")  # as readers have it who come from Temporal
    where = {"TEMPORAL_ADDRESS": f"127.0.0.1:{temporal_server.port}", "TEMPORAL_NAMESPACE": namespace}
    run_page(fork_server, ROOT / page, tmp_path, "temporal://", **where)


def test_few_snippets_are_excused() -> None:
    excused = [
        f"{short(page)}:{block.line}"
        for page in PAGES
        for block in blocks(page)
        if block.language == "python" and not block.runs and block.excerpt_of is None
    ]
    assert len(excused) <= MOST_THAT_DO_NOT_RUN, excused


@pytest.mark.parametrize(
    ("page", "block"),
    [(page, block) for page in PAGES for block in blocks(page) if block.excerpt_of is not None],
    ids=lambda part: short(part) if isinstance(part, Path) else str(part.line),
)
def test_an_excerpt_is_what_the_file_says(page: Path, block: Block) -> None:
    """Such a block does not run on the page: the tests of its file run it."""
    assert block.excerpt_of is not None
    assert block.body in read(block.excerpt_of)


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_settings_in_toml_are_accepted(page: Path) -> None:
    for block in blocks(page):
        if block.language == "toml" and block.title in (None, "semel.toml"):
            read_settings(tomllib.loads(block.body))
