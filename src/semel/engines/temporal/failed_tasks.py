"""How the SDK logs a workflow task that failed: in full the first time, then on one line."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from semel.engine.failure_log import RepeatedFailures
from semel.errors import phrase_with_type

SDK_LOG: Final = logging.getLogger("temporalio.worker._workflow_instance")
MARK: Final = "__temporal_error_identifier"
FAILED_TASK: Final = "WorkflowTaskFailure"


class ShortenRepeats(logging.Filter):
    """On the SDK's log while a worker of Semel runs: leaves out the traceback where a workflow of these types fails as
    it did when it was last tried. A parked workflow is tried again and again."""

    def __init__(self, types: Collection[str]) -> None:
        super().__init__()
        self._types = types
        self._repeated = RepeatedFailures()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, those that repeat the failure before without their traceback."""
        about = getattr(record, "temporal_workflow", None)
        error = record.exc_info[1] if record.exc_info else None
        if getattr(record, MARK, None) != FAILED_TASK or not isinstance(about, dict) or error is None:
            return True
        if about.get("workflow_type") in self._types and self._repeated.is_repeated(str(about.get("run_id")), error):
            record.msg, record.args = "%s, as before: %s", (record.getMessage(), phrase_with_type(error))
            record.exc_info = record.exc_text = None
        return True
