"""How long the proofs may take, and who gets how much of it."""

from __future__ import annotations

import os
from collections.abc import Callable

Tell = Callable[[str], None]
"""What the fixture `tell` gives: a line for the summary at the end of the run."""


def seconds(share: float) -> float:
    """A share of PROOF_MINUTES (10 unless told), in seconds."""
    return float(os.environ.get("PROOF_MINUTES", "10")) * 60.0 * share
