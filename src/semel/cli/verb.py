"""Commands that need only the database: they are handed an open App, and get its options by themselves."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from semel.app import App
from semel.cli.exits import Exit, guarded
from semel.cli.paper import Paper
from semel.errors import EngineUnavailable

Url = Annotated[
    str | None,
    typer.Option("--url", help="The database. Default: SEMEL_URL, semel.toml, then sqlite:///semel.db."),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", help="Default: SEMEL_NAMESPACE, semel.toml, then 'default'."),
]
Config = Annotated[str, typer.Option("--config", help="The settings file.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs, on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", envvar="SEMEL_DEBUG", help="Show tracebacks.", show_envvar=False)]

Verb = Callable[..., Coroutine[Any, Any, Exit | None]]
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "url": (Url, None),
    "namespace": (Namespace, None),
    "config": (Config, "semel.toml"),
    "as_json": (Json, False),
    "debug": (Debug, False),
}


def database_verb(*, creates: bool = False) -> Callable[[Verb], Callable[..., None]]:
    """Make a command of `async def f(app, paper, …)`; it gains --url, --namespace, --config, --json, --debug.

    Unless it `creates` one, a SQLite file that is not there is an error: a mistyped path makes no database.
    """

    def decorate(verb: Verb) -> Callable[..., None]:
        own = list(inspect.signature(verb, eval_str=True).parameters.values())[2:]

        def command(
            url: str | None, namespace: str | None, config: str, as_json: bool, debug: bool, **options: Any
        ) -> None:
            def work() -> Exit | None:
                app = App(url, namespace=namespace, config=config)
                if not creates:
                    must_exist(app.settings.url)
                return asyncio.run(_opened(app, verb, Paper(as_json, app.settings), options))

            guarded(work, debug)

        added = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in _OPTIONS.items()
        ]
        keyword_only = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in own]
        # What typer reads to know the options of a command.
        command.__dict__["__signature__"] = inspect.Signature(keyword_only + added)
        command.__name__ = verb.__name__
        command.__doc__ = verb.__doc__
        return command

    return decorate


async def _opened(app: App, verb: Verb, paper: Paper, options: dict[str, Any]) -> Exit | None:
    async with app:
        return await verb(app, paper, **options)


def must_exist(url: str) -> None:
    """A SQLite file that is not there is an error, not a new database."""
    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and url != "sqlite:///:memory:" and not path.exists():
        raise EngineUnavailable(
            f"there is no database file {str(path)!r}. Give --url or set SEMEL_URL; your app makes the file on "
            "first use, and so does: semel migrate"
        )
