"""A namespace for each test."""

from pathlib import Path

import pytest

from tests.conftest import new_world
from tests.temporal_world import TemporalWorld


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> TemporalWorld:
    """For what only Temporal does."""
    world = new_world("temporal", tmp_path, request)
    assert isinstance(world, TemporalWorld)
    return world
