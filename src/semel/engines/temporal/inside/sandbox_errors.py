"""What Temporal's sandbox refuses, in Semel's words."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import Final

from temporalio import workflow
from temporalio.worker.workflow_sandbox import RestrictedWorkflowAccessError

from semel.errors import Forbidden, NonDeterminism
from semel.flow.compare import refuse_too

_LIBRARIES: Final = (
    str(Path(__file__).parents[3]),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)


def translate(error: RestrictedWorkflowAccessError) -> Forbidden:
    """What the sandbox forbids is no failure of a workflow or of a message: they wait for code that does not do it."""
    what = error.qualified_name.removesuffix(".__call__")
    where = _line(error)
    return Forbidden(
        f"{what}{f' at {where}' if where else ''} belongs in a task or a step, not in the code of a workflow or "
        "entity. For time, chance and ids there are ctx.now, ctx.random and ctx.uuid4(), which say the same at every "
        "replay.",
        what=what,
        where=where,
    )


def not_ours(error: workflow.NondeterminismError) -> NonDeterminism:
    """Temporal itself says that the code does not fit its history."""
    return NonDeterminism(str(error), where=_line(error))


def _line(error: BaseException) -> str:
    """The line of people's own code that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def park_refusals() -> None:
    """From now on these errors park what raises them, as Semel's own do."""
    refuse_too(RestrictedWorkflowAccessError, translate)
    refuse_too(workflow.NondeterminismError, not_ours)
