"""Activities and their triggers. What needs Pydantic is imported when first asked for, since that takes a while."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from semel.triggers.envelope import EventEnvelope
    from semel.triggers.files import load_definitions
    from semel.triggers.models import (
        ActivityDefinition,
        CronTriggerConfig,
        EventTriggerConfig,
        IntervalTriggerConfig,
        OnceTriggerConfig,
        TaskSpec,
    )
else:
    _LATER = {
        "ActivityDefinition": "semel.triggers.models",
        "CronTriggerConfig": "semel.triggers.models",
        "EventEnvelope": "semel.triggers.envelope",
        "EventTriggerConfig": "semel.triggers.models",
        "IntervalTriggerConfig": "semel.triggers.models",
        "OnceTriggerConfig": "semel.triggers.models",
        "TaskSpec": "semel.triggers.models",
        "load_definitions": "semel.triggers.files",
    }

    def __getattr__(name: str) -> object:
        home = _LATER.get(name)
        if home is None:
            raise AttributeError(f"module 'semel.triggers' has no attribute {name!r}")
        import importlib

        value = globals()[name] = getattr(importlib.import_module(home), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATER})


__all__ = [
    "ActivityDefinition",
    "CronTriggerConfig",
    "EventEnvelope",
    "EventTriggerConfig",
    "IntervalTriggerConfig",
    "OnceTriggerConfig",
    "TaskSpec",
    "load_definitions",
]
