"""Options of enqueue cannot be parameters of a task."""

import pytest

import semel
from semel.define.options import (
    RESERVED,
    RESERVED_IN_WORKFLOWS,
    ChildTaskOptions,
    ChildWorkflowOptions,
    TaskOptions,
    WorkflowOptions,
)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_they_are_refused_at_decoration_with_a_way_out(name: str) -> None:
    app = semel.App("sqlite:///:memory:", config=None)
    namespace: dict[str, object] = {}
    exec(f"def work({name}): ...", namespace)
    with pytest.raises(semel.DefinitionError) as caught:
        app.task(namespace["work"])  # type: ignore[call-overload]
    assert f"has a parameter '{name}', which is an option of enqueue()" in caught.value.message
    assert f"'the_{name}'" in caught.value.message
    assert len(app.tasks) == 0


def test_every_option_of_a_start_is_reserved() -> None:
    assert {*TaskOptions.__annotations__, *ChildTaskOptions.__annotations__} <= RESERVED
    assert {*WorkflowOptions.__annotations__, *ChildWorkflowOptions.__annotations__} <= RESERVED_IN_WORKFLOWS
