"""JSON Schemas of the models, for editors and for other languages: files that are made, and compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from semel.triggers.envelope import EventEnvelope
from semel.triggers.event_source import EventSource
from semel.triggers.files import ActivityFile
from semel.triggers.models import (
    ActivityDefinition,
    CronTriggerConfig,
    EventTriggerConfig,
    IntervalTriggerConfig,
    OnceTriggerConfig,
    TaskSpec,
)

MODELS: Final[tuple[type[BaseModel], ...]] = (
    ActivityDefinition,
    ActivityFile,
    CronTriggerConfig,
    EventEnvelope,
    EventSource,
    EventTriggerConfig,
    IntervalTriggerConfig,
    OnceTriggerConfig,
    TaskSpec,
)
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class _Generator(GenerateJsonSchema):
    """Leaves out titles that only repeat the name of a field."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of what a model reads."""
    schema = model.model_json_schema(schema_generator=_Generator)
    _tidy(schema)
    return {"$schema": DIALECT, "$id": f"urn:semel:{model.__name__}", **schema}


def _tidy(schema: Any) -> None:
    """Write each description in one line, and require the type of a trigger, which only code may leave out."""
    if isinstance(schema, list):
        for one in schema:
            _tidy(one)
    if not isinstance(schema, dict):
        return
    if isinstance(text := schema.get("description"), str):
        schema["description"] = " ".join(text.split())
    properties = schema.get("properties")
    if isinstance(properties, dict) and "const" in properties.get("type", ()):
        del properties["type"]["default"]
        schema["required"] = ["type", *schema.get("required", ())]
    for one in schema.values():
        _tidy(one)


def schema_files() -> Mapping[str, str]:
    """The text of each file, by its name."""
    return {
        f"{model.__name__}.json": json.dumps(schema_of(model), ensure_ascii=False, indent=2) + "\n" for model in MODELS
    }


def write_schemas(folder: Path) -> list[Path]:
    """Write the files into a folder, which is made if it is missing; those that were written."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in schema_files().items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in schema_files()]


def stale_schemas(folder: Path) -> list[Path]:
    """The files of a folder that are missing or differ, and those whose model is gone."""
    wanted = schema_files()
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    return [folder / name for name in sorted({*wanted, *there}) if wanted.get(name) != there.get(name)]
