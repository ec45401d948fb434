"""Which workflow or entity is meant: a key, an execution id, or the beginning of one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from semel import App, Execution, Handle, NotFound

Which = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="The workflow's id, or its execution, or the beginning of that.", show_default=False
    ),
]
WhichOne = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="The workflow's id, or Class/id of an entity, or the execution, or the beginning of that.",
        show_default=False,
    ),
]


async def flow_of(app: App, which: str) -> tuple[Handle[Any], Execution]:
    """The newest workflow or entity under a key, or the execution of that id. NotFound says what there is instead."""
    handle = await app.find(which, kind="workflow") or await app.find(which, kind="entity")
    if handle is None:
        try:
            handle = await app.get(which)
        except NotFound:
            raise NotFound(
                f"no workflow has the id {which!r}, no entity has that key, and no execution begins so (or several "
                f"do), in namespace {app.settings.namespace!r}. See: semel workflows list"
            ) from None
    execution = await handle.describe()
    if execution.kind == "task":
        raise NotFound(f"execution {execution.id} is a task, not a workflow. See: semel show {execution.id}")
    return handle, execution


async def workflow_of(app: App, which: str) -> tuple[Handle[Any], Execution]:
    """The same for what only workflows have."""
    handle, execution = await flow_of(app, which)
    if execution.kind != "workflow":
        raise NotFound(
            f"{execution.key} ({execution.id}) is an {execution.kind}, not a workflow. "
            f"See: semel workflows show {execution.key}"
        )
    return handle, execution
