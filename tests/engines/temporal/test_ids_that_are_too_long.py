"""A key that a cluster cannot keep is refused at the door, by its own error."""

from __future__ import annotations

import pytest

from semel.engines.temporal.names import LONGEST_ID, workflow_id
from semel.errors import InvalidKey

WIDE = "\N{GRINNING FACE}"
"""A character of four bytes."""


@pytest.mark.parametrize("kind", ["task", "workflow", "entity"])
def test_a_key_of_255_wide_characters_is_refused(kind: str) -> None:
    with pytest.raises(InvalidKey, match=r"takes 1,0\d\d bytes in Temporal"):
        workflow_id(kind, WIDE * 255)


@pytest.mark.parametrize("kind", ["task", "workflow", "entity"])
def test_what_just_fits_is_taken(kind: str) -> None:
    prefix = len(workflow_id(kind, "k")) - 1
    key = WIDE * ((LONGEST_ID - prefix) // 4)
    assert len(workflow_id(kind, key).encode()) <= LONGEST_ID
    assert workflow_id(kind, "k" * 255).endswith("k" * 255)
