"""Every derived key and mark has a format that never changes silently: a new one would make every old run look new."""

from semel import App
from semel.contract.keys import effect_key
from semel.engine.requests import request
from semel.engines.temporal.names import execution_id, workflow_id
from semel.flow.commands import Kind, mark_of
from semel.flow.steps import step_of
from semel.settings import Settings


def test_derived_keys_and_marks_are_what_they_were_in_the_first_release() -> None:
    app = App("sqlite:///:memory:", config=None)

    @app.task
    async def charge(order: str, currency: str = "EUR") -> None: ...

    def start(*args: str) -> str:
        return mark_of(request(Settings(), charge, args, {}, task_id="pay"))

    def step() -> str:
        return step_of(Kind.STEP, charge.fn, ("o-1",), {"currency": "USD"}, "charge", None, 1000).mark

    assert {
        "effect": effect_key("default", "task", "pay", 0, "charge"),
        "task of a workflow": start("o-1"),
        "task of a workflow, all arguments": start("o-1", "EUR"),
        "step": step(),
        "task on Temporal": workflow_id("task", "pay"),
        "entity on Temporal": workflow_id("entity", "Account/ann"),
        "workflow on Temporal": workflow_id("workflow", "order-1"),
        "execution on Temporal": execution_id("run", "task:pay"),
    } == {
        "effect": "semel1:default:task:pay:charge",
        "task of a workflow": "pay#a2d1e077092d4acb",
        "task of a workflow, all arguments": "pay#73b54a64b925c89a",
        "step": "f76257a661b303e2",
        "task on Temporal": "task:pay",
        "entity on Temporal": "entity:Account/ann",
        "workflow on Temporal": "order-1",
        "execution on Temporal": "run@task:pay",
    }
