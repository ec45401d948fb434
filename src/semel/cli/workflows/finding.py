"""Which workflow is meant: a key, an execution id, or the beginning of one."""

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


async def workflow_of(app: App, which: str) -> tuple[Handle[Any], Execution]:
    """The newest under a key, or the execution of that id. NotFound says what there is instead."""
    handle = await app.find(which, kind="workflow")
    if handle is None:
        try:
            handle = await app.get(which)
        except NotFound:
            raise NotFound(
                f"no workflow has the id {which!r}, and no execution begins so (or several do), in namespace "
                f"{app.settings.namespace!r}. See: semel workflows list"
            ) from None
    execution = await handle.describe()
    if execution.kind != "workflow":
        raise NotFound(
            f"execution {execution.id} is a {execution.kind}, not a workflow. See: semel show {execution.id}"
        )
    return handle, execution
