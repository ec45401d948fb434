"""What commands share: their options, the app or database they work on, errors as one line, exit codes."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Coroutine, Sequence
from enum import IntEnum
from functools import partial, reduce
from inspect import Parameter
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from semel.app import App
from semel.cli.output import Output, complain, print_error
from semel.errors import (
    ConfigError,
    DefinitionError,
    Duplicate,
    EngineError,
    EngineUnavailable,
    InputError,
    InvalidValue,
    NotFound,
    NotRedrivable,
    NotResettable,
    SemelError,
    WorkflowEnded,
)

Target = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="Where your App is, such as shop:app.", show_default=False)
]
OptionalTarget = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:APP", help="Where your App is, such as shop:app; instead of --url.", show_default=False
    ),
]
Url = Annotated[
    str | None,
    typer.Option("--url", help="The database. Default: SEMEL_URL, semel.toml, then sqlite:///semel.db."),
]
OutboxDatabase = Annotated[
    str | None,
    typer.Option(
        "--database",
        "--url",
        help="The database with the outbox, that of your business rows. Default: SEMEL_OUTBOX, then semel.toml.",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", help="The namespace. Default: SEMEL_NAMESPACE, semel.toml, then 'default'."),
]
Config = Annotated[str, typer.Option("--config", help="The settings file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Debug = Annotated[bool, typer.Option("--debug", envvar="SEMEL_DEBUG", help="Show tracebacks.", show_envvar=False)]

Command = Callable[..., Coroutine[Any, Any, "Exit | None"]]
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "url": (Url, None),
    "namespace": (Namespace, None),
    "config": (Config, "semel.toml"),
    "as_json": (Json, False),
    "debug": (Debug, False),
}


class Exit(IntEnum):
    """How a command ended. Stable: scripts rely on these."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNAVAILABLE = 5
    FINDINGS = 6
    DIFFERS = 7


MEANING = {
    Exit.OK: "done",
    Exit.FAILED: "it failed, doctor found a problem, or schema export --check a difference",
    Exit.USAGE: "wrong usage or settings",
    Exit.NOT_FOUND: "no such execution, key or task",
    Exit.CONFLICT: "conflict: the key is taken, or the state does not allow it",
    Exit.UNAVAILABLE: "the database cannot be reached, or needs: semel migrate",
    Exit.FINDINGS: "semel check or semel reconcile found something",
    Exit.DIFFERS: "recorded histories do not replay with this code, or it lacks a function that work waits for",
}

EPILOG = "\n".join(["\b", "Exit codes:", *(f"  {code.value}  {text}" for code, text in MEANING.items())])

_CODES: tuple[tuple[type[SemelError], Exit], ...] = (
    (InputError, Exit.USAGE),
    (ConfigError, Exit.USAGE),
    (DefinitionError, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (Duplicate, Exit.CONFLICT),
    (NotRedrivable, Exit.CONFLICT),
    (NotResettable, Exit.CONFLICT),
    (WorkflowEnded, Exit.CONFLICT),
    (EngineError, Exit.UNAVAILABLE),
)


def code_of(error: SemelError) -> Exit:
    """The exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)


class CommandFailed(Exception):
    """A command cannot do what it was asked for, and no error of the library says so."""

    def __init__(self, message: str, exit_code: Exit) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def guarded(work: Callable[[], Exit | None], debug: bool, as_json: bool = False) -> None:
    """Do the work of a command; an error becomes a line, or JSON, and an exit code (with `debug`, a traceback)."""
    try:
        code = work() or Exit.OK
    except (SemelError, CommandFailed) as error:
        if debug:
            raise
        code = error.exit_code if isinstance(error, CommandFailed) else code_of(error)
        if not as_json:
            complain(str(error))
        elif isinstance(error, CommandFailed):
            print_error(str(error), type="CommandFailed", code=None, exit_code=code)
        else:
            named = ("execution_id", "existing_execution_id")
            more = {name: getattr(error, name) for name in named if getattr(error, name, None) is not None}
            print_error(error.message, type=type(error).__name__, code=error.code, exit_code=code, **more)
    raise typer.Exit(code)


class JsonErrors(TyperGroup):
    """Commands whose wrong usage is JSON, too, where `--json` is among their arguments."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; see click."""
        run = partial(super().main, args, prog_name, complete_var, windows_expand_args=windows_expand_args, **extra)
        if not standalone_mode or "--json" not in (sys.argv[1:] if args is None else args):
            return run(standalone_mode=standalone_mode)
        try:
            sys.exit(run(standalone_mode=False))
        except typer.Abort:
            print_error("aborted", type="Abort", code=None, exit_code=Exit.FAILED)
            sys.exit(Exit.FAILED)
        except Exception as error:  # click's own errors: typer has a copy of click, so there is no one class
            explain = getattr(error, "format_message", None)
            if explain is None:
                raise
            print_error(explain(), type=type(error).__name__, code=None, exit_code=Exit.USAGE)
            sys.exit(Exit.USAGE)


def database_command(
    *, creates: bool = False, takes_app: bool = False, outbox: bool = False
) -> Callable[[Command], Callable[..., None]]:
    """Make a command of `async def f(app, out, …)`; it gains --url, --namespace, --config, --json and --debug.

    Unless it `creates` one, a missing SQLite file is an error: a mistyped path makes no database. A command that
    `takes_app` can be given MODULE:APP instead of --url. A command about an `outbox` has --database,
    and --url means the same there.
    """

    def decorate(run: Command) -> Callable[..., None]:
        own = list(inspect.signature(run, eval_str=True).parameters.values())[2:]

        def command(
            url: str | None,
            namespace: str | None,
            config: str,
            as_json: bool,
            debug: bool,
            target: str | None = None,
            **options: Any,
        ) -> None:
            def work() -> Exit | None:
                if outbox:
                    app = App(namespace=namespace, config=config, outbox=url)
                elif target is None:
                    app = App(url, namespace=namespace, config=config)
                elif url is None and namespace is None:
                    app = load_app(target)
                else:
                    raise InvalidValue(f"give {target} or --url and --namespace, not both.")
                if not creates and not outbox:
                    require_database(app.settings.url)
                return asyncio.run(_run(app, run, Output(as_json, app.settings), options))

            guarded(work, debug, as_json)

        added = {"target": (OptionalTarget, None), **_OPTIONS} if takes_app else _OPTIONS
        if outbox:
            added = {**_OPTIONS, "url": (OutboxDatabase, None)}
        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in added.items()
        ]
        keyword_only = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in own]
        # What typer reads to know the options of a command.
        command.__dict__["__signature__"] = inspect.Signature(keyword_only + parameters)
        command.__name__ = run.__name__
        command.__doc__ = run.__doc__
        return command

    return decorate


async def _run(app: App, run: Command, out: Output, options: dict[str, Any]) -> Exit | None:
    async with app:
        return await run(app, out, **options)


def missing_file(url: str) -> Path | None:
    """The SQLite file of a URL, if it does not exist."""
    path = Path(url.removeprefix("sqlite:///"))
    is_file = url.startswith("sqlite:///") and url != "sqlite:///:memory:"
    return path if is_file and not path.exists() else None


def require_database(url: str) -> None:
    """Refuse to make a new SQLite database where one should be."""
    path = missing_file(url)
    if path is not None:
        raise EngineUnavailable(
            f"there is no database file {str(path)!r}. Give --url or set SEMEL_URL; your app creates the file on "
            "first use, and so does: semel migrate"
        )


def load_app(target: str) -> App:
    """Import `module:app`, from here or from what is installed, and find the App. ConfigError says what to do."""
    name, colon, attribute = target.partition(":")
    if not colon or not attribute or not name:
        raise ConfigError(f"{target!r} does not name an App: write module:attribute, such as {_suggest(name)}.")
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigError(f"{name!r} is a file: give its module, {dotted}:{attribute}.")
    module = _import(name)
    try:
        app = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        raise ConfigError(f"module {name!r} has no {attribute!r}. {_suggest_app(module, attribute)}") from None
    if not isinstance(app, App):
        raise ConfigError(f"{target} is a {type(app).__name__}, not a semel.App. {_suggest_app(module, attribute)}")
    return app


def _suggest(name: str) -> str:
    return f"{name}:app" if name.replace(".", "").isidentifier() else "shop:app"


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"importing {name!r} failed: {error} {_place(error)}.") from error
        near = difflib.get_close_matches(name, [path.stem for path in Path.cwd().glob("*.py")], 1)
        hint = f"Did you mean {near[0]!r}?" if near else "Go to the folder that holds it, or install it."
        raise ConfigError(f"there is no module {error.name!r}, neither in {here} nor installed. {hint}") from error
    except SemelError:
        raise
    except Exception as error:
        raise ConfigError(
            f"importing {name!r} failed: {type(error).__name__}: {error} {_place(error)}. "
            "See the traceback with --debug."
        ) from error


def _place(error: BaseException) -> str:
    """The innermost line of the caller's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename]
    return f"({own[-1].filename}, line {own[-1].lineno})" if own else ""


def _suggest_app(module: ModuleType, attribute: str) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    if not apps:
        return "Create one in it: app = semel.App()"
    near = difflib.get_close_matches(attribute, apps, 1) or apps[:1]
    return f"Did you mean {module.__name__}:{near[0]}?"
