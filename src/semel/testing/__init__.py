"""For tests: of code that uses Semel, and of Semel itself."""

from semel.testing.faults import Fault, Mode
from semel.testing.running import running

__all__ = ["Fault", "Mode", "running"]
