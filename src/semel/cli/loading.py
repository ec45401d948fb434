"""From `module:app` on the command line to the App in it."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from semel.app import App
from semel.errors import ConfigError, SemelError

Target = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="Where the App is, such as shop:app.", show_default=False)
]


def load_app(target: str) -> App:
    """Import the module, from here or from what is installed, and find the App. ConfigError says what to do."""
    name, colon, attribute = target.partition(":")
    if not colon or not attribute or not name:
        raise ConfigError(f"{target!r} does not name an App: write module:attribute, such as {_guess(name)}.")
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigError(f"{name!r} is a file: give its module, {dotted}:{attribute}.")
    module = _import(name)
    try:
        app = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        raise ConfigError(f"module {name!r} has no {attribute!r}. {_apps_in(module, attribute)}") from None
    if not isinstance(app, App):
        raise ConfigError(f"{target} is a {type(app).__name__}, not a semel.App. {_apps_in(module, attribute)}")
    return app


def _guess(name: str) -> str:
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


def _apps_in(module: ModuleType, attribute: str) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    if not apps:
        return "Make one in it: app = semel.App()"
    near = difflib.get_close_matches(attribute, apps, 1) or apps[:1]
    return f"Did you mean {module.__name__}:{near[0]}?"
