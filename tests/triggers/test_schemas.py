"""The committed JSON Schemas are those of the models, and `semel schema export` keeps them so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from semel.triggers.schemas import MODELS, schema_of, stale_schemas
from tests.cli.shell import semel

FOLDER = Path(__file__).resolve().parents[2] / "schemas"


def test_the_committed_schemas_are_those_of_the_models() -> None:
    assert stale_schemas(FOLDER) == [], "run: semel schema export schemas"


def objects(schema: Any) -> list[dict[str, Any]]:
    """All schemas of objects with fields."""
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    own = [schema] if isinstance(schema, dict) and "properties" in schema else []
    return own + [found for one in inner for found in objects(one)]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_field_is_described_and_no_other_is_allowed(model: type[BaseModel]) -> None:
    for one in objects(schema_of(model)):
        assert one["additionalProperties"] is False
        assert [name for name, field in one["properties"].items() if not field.get("description")] == []


def test_schemas_require_the_type_of_a_trigger() -> None:
    schema = json.loads((FOLDER / "CronTriggerConfig.json").read_text(encoding="utf-8"))
    assert schema["required"] == ["type", "cron"]
    assert schema["properties"]["cron"]["anyOf"][0] == {"type": "string"}


def test_export_writes_every_schema(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "schemas"
    told = semel("schema", "export", str(folder))
    written = sorted(folder.iterdir())
    assert (told.code, told.out) == (0, "".join(f"wrote {path}\n" for path in written))
    assert [path.stem for path in written] == sorted(model.__name__ for model in MODELS)
    assert {path.name: path.read_bytes() for path in written} == {
        path.name: path.read_bytes() for path in FOLDER.iterdir()
    }


def test_check_names_what_differs_and_writes_nothing(tmp_path: Path) -> None:
    semel("schema", "export", str(tmp_path))
    assert semel("schema", "export", str(tmp_path), "--check").code == 0
    changed, missing, foreign = tmp_path / "ActivityDefinition.json", tmp_path / "TaskSpec.json", tmp_path / "Old.json"
    changed.write_text("{}", encoding="utf-8")
    foreign.write_text("{}", encoding="utf-8")
    missing.unlink()
    told = semel("schema", "export", str(tmp_path), "--check")
    assert told.code == 1
    assert told.out == f"{changed} differs\n{foreign} is of no model\n{missing} is missing\n"
    assert f"semel schema export {tmp_path}" in told.err
    assert (changed.read_text(encoding="utf-8"), missing.exists()) == ("{}", False)
    told = semel("schema", "export", str(tmp_path), "--check", "--json")
    assert (told.code, told.data) == (1, {"stale": [str(changed), str(foreign), str(missing)]})


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    told = semel("schema", "export", str(tmp_path / "file"))
    assert (told.code, "cannot be used" in told.err) == (2, True)
