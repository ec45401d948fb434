"""Every error, setting, command, capability, table and file is written about; nothing that is not there is."""

from __future__ import annotations

import dataclasses
import inspect
import re
from datetime import timedelta
from typing import Any

import pytest

import semel
from semel import errors, settings
from semel.contract.durations import format_duration
from semel.definitions import Definitions
from semel.engine.protocol import Capabilities
from semel.engines import factory
from semel.engines.temporal.engine import TEMPORAL
from semel.events import Publishing
from semel.flow.context import Child, Context
from semel.inspection import Inspection
from semel.schedules import Scheduling
from semel.sweepers import Sweeping
from semel.sync import SyncApp
from semel.sync_verbs import SyncHandle
from semel.transactions import Transactions
from tests.docs.pages import PAGES, ROOT, blocks, read, table

ERRORS = [c for c in vars(errors).values() if inspect.isclass(c) and issubclass(c, errors.SemelError)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda c: c.__name__)
def test_every_error_has_its_section(error: type[errors.SemelError]) -> None:
    code = f" {error.code}" if "code" in vars(error) else ""
    sections = re.split(r"(?m)^#+ ", read("docs/reference/errors.md"))
    mine = [s for s in sections if s.startswith(f"{error.__name__}{code}\n")]
    assert len(mine) == 1
    if code:
        assert "**Cause.**" in mine[0]
        assert "**What to do.**" in mine[0]


def test_no_error_is_made_up() -> None:
    known = {error.code for error in ERRORS}
    for page in PAGES:
        assert set(re.findall(r"SEMEL-[A-Z]?\d+", page.read_text(encoding="utf-8"))) <= known


def default(value: Any) -> str:
    match value:
        case timedelta():
            return f'"{format_duration(value)}"'
        case bool():
            return str(value).lower()
        case None:
            return "none"
        case str():
            return f'"{value}"'
    return str(value)


@pytest.mark.parametrize(
    ("group", "first"),
    [
        (settings.Settings, "setting"),
        (settings.WorkerSettings, "[worker]"),
        (settings.QueueSettings, "[queues.NAME]"),
        (settings.TemporalSettings, "[temporal]"),
    ],
)
def test_every_setting_is_documented_with_its_default(group: Any, first: str) -> None:
    rows = {row[0]: row[1] for row in table(read("docs/reference/settings.md"), first)[1:]}
    fields = [f for f in dataclasses.fields(group) if f.name not in ("queues", "worker", "temporal", "environment")]
    assert rows == {f.name: default(f.default) for f in fields}


def test_every_environment_variable_is_documented() -> None:
    known = set(re.findall(r"SEMEL_[A-Z_]+", inspect.getsource(settings)))
    assert set(re.findall(r"SEMEL_[A-Z_]+", read("docs/reference/settings.md"))) == known


def test_the_engine_table_is_what_the_engines_declare() -> None:
    head, *body = table(read("docs/reference/engines.md"), "capability")
    engines = {"SQLite": factory.SQLITE, "PostgreSQL": factory.POSTGRES, "Temporal": TEMPORAL}
    assert head[1:] == list(engines)
    declared = {
        field.name: ["yes" if getattr(engine, field.name) else "no" for engine in engines.values()]
        for field in dataclasses.fields(Capabilities)
        if field.name != "name"
    }
    assert {row[0]: row[1:] for row in body} == declared


def commands() -> dict[str, Any]:
    """The commands of `semel` by name, those of a group as "group command"."""
    import typer

    from semel.cli import cli

    found: dict[str, Any] = {}
    for name, command in vars(typer.main.get_command(cli))["commands"].items():
        found[name] = command
        found |= {f"{name} {inner}": one for inner, one in getattr(command, "commands", {}).items()}
    return found


def test_every_command_has_its_section() -> None:
    sections = re.findall(r"(?m)^##+ semel ([\w -]+)$", read("docs/reference/cli.md"))
    assert sorted(sections) == sorted(commands())


def test_every_option_of_a_command_is_documented() -> None:
    text = read("docs/reference/cli.md")
    for name, command in commands().items():
        section = re.split(rf"(?m)^##+ semel {name}$", text)[1].partition("\n##")[0]
        shown = [p for p in command.params if not getattr(p, "hidden", False)]
        options = [o for p in shown for o in p.opts if o.startswith("--") and o != "--help"]
        assert [o for o in options if f"`{o}`" not in section] == [], name


def test_no_page_uses_a_command_that_is_not_there() -> None:
    known = commands()
    for page in PAGES:
        for block in blocks(page):
            if block.language == "console":
                groups = "workflows|temporal|schedules|backfills|entities|schema|events|outbox"
                used = re.findall(rf"(?m)^\$ semel ((?:(?:{groups}) )?[a-z-]+)", block.body)
                assert set(used) <= set(known), page


def test_the_architecture_names_every_room_and_no_file_that_is_not_there() -> None:
    text, source = read("ARCHITECTURE.md"), ROOT / "src" / "semel"
    folders = {path.parent for path in source.rglob("__init__.py")} - {source, source / "engines"}
    rooms = [folder.relative_to(source).as_posix() for folder in sorted(folders)]
    faces = [path.stem for path in source.glob("*.py") if not path.stem.startswith("__")]
    table = text.partition("## Rooms")[2].partition("\n## ")[0]
    assert [room for room in rooms if f"`{room}/`" not in table] == []
    assert [face for face in faces if f"`{face}`" not in table] == []
    for name in re.findall(r"`([\w/]+\.(?:py|sql))`", text):
        assert list(source.rglob(name)), f"{name} is named and not there"


def test_every_table_is_explained() -> None:
    for name in ("ARCHITECTURE.md", "docs/reference/tables.md"):
        text = read(name)
        for dialect in ("sqlite", "postgres"):
            for path in (ROOT / "src/semel/engines" / dialect / "migrations").glob("*.sql"):
                for created in re.findall(r"create (?:table|view) (\w+)", path.read_text(encoding="utf-8")):
                    assert f"`{created}`" in text, (name, created)


def public(thing: type) -> set[str]:
    """Verbs; attributes such as `engine` and `settings` are not for everyday use."""
    return {name for name, member in vars(thing).items() if name[0] != "_" and inspect.isfunction(member)}


def test_every_verb_of_the_app_is_on_its_page() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \| (.*) \|$", read("docs/reference/app.md"))
    parts = (semel.App, Inspection, Definitions, Scheduling, Publishing, Sweeping, Transactions, semel.Handle)
    assert {name for name, _ in rows} == set().union(*map(public, parts))
    synced = {name for name, words in rows if words.endswith("*sync*")}
    assert synced == public(SyncApp) - {"wait"}
    assert public(SyncHandle) == public(semel.Handle)


def test_everything_of_a_context_is_on_its_page() -> None:
    text = read("docs/reference/workflows.md")
    attributes = re.findall(r"self\.([a-z]\w*)[: ]", inspect.getsource(Context.__init__))
    context = public(Context) | set(attributes) | {"random"}
    assert [name for name in sorted(context) if f"ctx.{name}" not in text] == []
    assert [name for name in sorted(public(Child)) if f"child.{name}" not in text] == []
    handle = set(re.findall(r"(?m)^\| `(\w+)\(", text.partition("## The handle")[2].partition("##")[0]))
    assert handle == public(semel.Handle) - {"result", "output", "input", "state", "status", "describe"}
