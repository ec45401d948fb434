"""`semel schema`: the JSON Schemas of activities, triggers and events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from semel.cli.command import Debug, Exit, Json, guarded
from semel.cli.output import Output, note
from semel.errors import ConfigError, phrase_with_type
from semel.settings import Settings

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the files.", show_default=False)]
Check = Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 if a file differs or is missing.")]


def export(folder: Folder, check: Check = False, as_json: Json = False, debug: Debug = False) -> None:
    """Write the JSON Schemas of activity definitions, triggers and event envelopes into a folder.

    With --check it writes nothing, names the files that differ, are missing or are of no model, and exits with 1 if
    there are any.
    """

    def work() -> Exit:
        from semel.triggers.schemas import MODELS, stale_schemas, write_schemas  # Pydantic takes a while

        try:
            files = stale_schemas(folder) if check else write_schemas(folder)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{str(folder)!r} cannot be used: {phrase_with_type(error)}.") from error
        names = {model.__name__ for model in MODELS}
        out = Output(as_json, Settings())
        if as_json:
            out.data({"stale" if check else "written": [str(file) for file in files]})
        for file in () if as_json else files:
            out.line(f"{file} {_state(file, names)}" if check else f"wrote {file}")
        if check and files:
            note(f"make them again: semel schema export {folder}")
        return Exit.FAILED if check and files else Exit.OK

    guarded(work, debug, as_json)


def _state(file: Path, names: set[str]) -> str:
    if file.stem not in names:
        return "is of no model"
    return "differs" if file.exists() else "is missing"
