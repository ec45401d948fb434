"""What Temporal's sandbox refuses, in Semel's words."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import Final

from temporalio import workflow
from temporalio.worker.workflow_sandbox import RestrictedWorkflowAccessError

from semel.errors import Forbidden
from semel.flow.instance import Instance

_LIBRARIES: Final = (
    str(Path(__file__).parents[2]), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
)  # fmt: skip


def refuse(instance: Instance) -> None:
    """What the sandbox forbids is no failure of the workflow: it waits for code that does not do it."""
    main = instance._main
    error = main.exception() if main is not None and main.done() and not main.cancelled() else None
    if isinstance(error, RestrictedWorkflowAccessError):
        what = error.qualified_name.removesuffix(".__call__")
        where = _line(error)
        raise Forbidden(
            f"workflow {instance.who.key!r}: {what}{f' at {where}' if where else ''} belongs in a task or a step. For "
            "time, chance and ids there are ctx.now, ctx.random and ctx.uuid4(), which say the same at every replay.",
            what=what, where=where,
        )  # fmt: skip
    if isinstance(error, workflow.NondeterminismError):
        raise error


def _line(error: BaseException) -> str:
    """The line of people's own code that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""
