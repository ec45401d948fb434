"""A decorated function stays a plain function."""

import inspect

import pytest

import semel


@pytest.fixture
def app() -> semel.App:
    return semel.App("sqlite:///:memory:", config=None)


async def test_it_is_called_as_if_it_had_never_been_decorated(app: semel.App) -> None:
    @app.task
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    @app.task(name="later", queue="q")
    async def add_later(a: int, b: int = 1) -> int:
        return a + b

    assert add(1) == 2
    assert add(1, b=4) == 5
    assert await add_later(2) == 3
    with pytest.raises(TypeError):
        add()  # type: ignore[call-arg]


def test_it_keeps_its_name_doc_and_signature(app: semel.App) -> None:
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    task = app.task(add)
    assert (task.__name__, task.__doc__, task.__wrapped__) == ("add", "Adds.", add)  # type: ignore[attr-defined]
    assert inspect.signature(task) == inspect.signature(add)
    assert repr(task) == "<task 'add' on queue 'default'>"


def test_two_functions_cannot_have_one_name(app: semel.App) -> None:
    app.task(name="work")(lambda: 1)
    with pytest.raises(semel.DefinitionError, match="two tasks are called 'work'"):
        app.task(name="work")(lambda: 2)
    assert [task.name for task in app.tasks] == ["work"]
    with pytest.raises(semel.NotFound, match="Did you mean 'work'"):
        app.tasks["wrok"]


def generator() -> object:
    yield 1


async def async_generator() -> object:
    yield 1


class Thing:
    def method(self) -> None: ...


@pytest.mark.parametrize("what", [generator, async_generator, Thing.method, Thing, Thing().method, len, 5])
def test_what_cannot_be_a_task_is_refused_at_decoration(app: semel.App, what: object) -> None:
    with pytest.raises(semel.DefinitionError):
        app.task(what)  # type: ignore[call-overload]
