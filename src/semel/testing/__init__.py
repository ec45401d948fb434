"""For tests: of code that uses Semel, and of Semel itself."""

import typing

from semel.testing.faults import Fault, Mode
from semel.testing.running import running

if typing.TYPE_CHECKING:
    from semel.testing.draining import Drained, drain, drain_sync
else:
    _LATER = ("Drained", "drain", "drain_sync")

    def __getattr__(name: str) -> object:
        """These bring an App with its engines: imported when they are asked for."""
        if name not in _LATER:
            raise AttributeError(f"module 'semel.testing' has no attribute {name!r}")
        from semel.testing import draining

        return getattr(draining, name)


__all__ = ["Drained", "Fault", "Mode", "drain", "drain_sync", "running"]
