"""Definitions of activities in TOML and JSON files: one in a file, several in a file, or a folder of files.

[[activities]]
activity_id = "daily-report"
triggers = [{ type = "cron", cron = "0 9 * * *", timezone = "Europe/Paris" }]
tasks = [{ task_type = "send_report" }]
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from semel.errors import ConfigError, phrase
from semel.triggers.fields import Model
from semel.triggers.models import ActivityDefinition
from semel.triggers.problems import Problem, format_place, list_problems, suggest

SUFFIXES: Final = (".json", ".toml")


class ActivityFile(Model):
    """A file with definitions of activities."""

    activities: tuple[ActivityDefinition, ...] = Field(min_length=1)
    """The definitions. A file with one definition may have its fields at the top instead."""


def load_definitions(path: str | os.PathLike[str]) -> list[ActivityDefinition]:
    """The definitions of a file, or of all files in a folder and the folders in it, in the order of their names.

    Raises ConfigError that names the file, the place in it and what is wrong with it: everything at once.
    """
    root = Path(path)
    if not root.exists():
        raise ConfigError(f"there is no file or folder {str(root)!r}.")
    files = _files_in(root) if root.is_dir() else [root]
    if not files:
        raise ConfigError(f"there is no .toml or .json file in {str(root)!r}.")
    definitions: list[ActivityDefinition] = []
    places: dict[str, str] = {}
    wrong: list[str] = []
    for file in files:
        found, problems = _read_file(file)
        wrong += [f"{file}: {problem}" for problem in problems]
        for place, definition in found:
            other = places.setdefault(definition.activity_id, f"{file}: {place}")
            if other != f"{file}: {place}":
                wrong.append(f"{file}: {place}: activity_id {definition.activity_id!r} is taken by {other}.")
        definitions += [definition for _, definition in found]
    if wrong:
        raise ConfigError("\n".join(wrong))
    return definitions


def _files_in(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix in SUFFIXES and file.is_file() and not any(part.startswith(".") for part in _parts(file, folder))
    )


def _parts(file: Path, folder: Path) -> Sequence[str]:
    return file.relative_to(folder).parts


def _read_file(file: Path) -> tuple[list[tuple[str, ActivityDefinition]], list[Problem]]:
    """The definitions of a file with their places, and what is wrong with it."""
    try:
        data = _parse(file)
    except (OSError, ValueError, RecursionError) as error:
        return [], [Problem("", f"cannot be read: {phrase(error)}")]
    if not isinstance(data, dict):
        return [], [Problem("", f"holds {_kind(data)}: write a table with activities, or one definition")]
    if "activity_id" in data:
        return _read_definitions([data], alone=True)
    unknown = [name for name in data if name != "activities"]
    problems = [_unknown(name) for name in unknown]
    activities = data.get("activities")
    if not isinstance(activities, list) or not activities:
        if activities is not None or not unknown:
            problems.append(Problem("activities", "give a list of definitions, [[activities]] in TOML"))
        return [], problems
    found, wrong = _read_definitions(activities, alone=False)
    return found, problems + wrong


def _unknown(name: str) -> Problem:
    known = ["activities", *ActivityDefinition.model_fields]
    if name in known:
        return Problem(name, "a definition has an activity_id as well, and one of several stands in [[activities]]")
    return Problem(name, f"there is no such field. {suggest(name, known)}")


def _read_definitions(
    entries: Iterable[Any], alone: bool
) -> tuple[list[tuple[str, ActivityDefinition]], list[Problem]]:
    found, problems = [], []
    for index, entry in enumerate(entries):
        place = "" if alone else format_place(("activities", index))
        named = f"{place} ({entry['activity_id']!r})" if place and _is_named(entry) else place
        try:
            found.append((named or "activity_id", ActivityDefinition.model_validate(entry)))
        except ValidationError as error:
            problems += [_placed(named, one) for one in list_problems(error, ActivityDefinition)]
    return found, problems


def _is_named(entry: object) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("activity_id"), str)


def _placed(place: str, problem: Problem) -> Problem:
    return Problem(" ".join(filter(None, (place, problem.place))), problem.message)


def _parse(file: Path) -> Any:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".toml":
        return tomllib.loads(text)
    if file.suffix == ".json":
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated)
    raise ValueError("it is neither a .toml nor a .json file")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number that JSON can write")


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice!r} is there twice in one object")
    return table


def _kind(data: object) -> str:
    return "a list" if isinstance(data, list) else f"{data!r}"
