"""`ctx.log`: a logger for workflow code that says each line once, however often the code is replayed."""

from __future__ import annotations

import logging

from semel.define.entity import Entity
from semel.define.workflow import Workflow
from semel.flow.loop import FlowLoop


class WorkflowLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs under the name of the module that defines the workflow, with its execution id and key on each record."""

    def __init__(self, definition: Workflow[..., object] | Entity[object], loop: FlowLoop) -> None:
        code = definition.cls if isinstance(definition, Entity) else definition.fn
        who = loop.who
        fields: dict[str, object] = {}
        if who is not None:
            fields = {"execution_id": who.id, "execution_key": who.key, "execution_name": who.name}
        super().__init__(logging.getLogger(code.__module__), fields)
        self._loop = loop

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 (logging's own name)
        """Not while the code does again what it has done before."""
        return not self._loop.replaying and super().isEnabledFor(level)
