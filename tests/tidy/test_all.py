"""`semel.__all__` is the public face: sorted, complete and described."""

import inspect
from types import ModuleType

import pytest

import semel


def public_names() -> set[str]:
    return {
        name
        for name, value in vars(semel).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }


def test_all_is_sorted_without_repeats() -> None:
    assert list(semel.__all__) == sorted(set(semel.__all__))


def test_all_names_everything_public() -> None:
    assert public_names() - set(semel.__all__) == set()


@pytest.mark.parametrize("name", semel.__all__)
def test_name_is_importable_and_described(name: str) -> None:
    value = getattr(semel, name)
    if inspect.isclass(value) or inspect.isroutine(value):
        # Not inspect.getdoc(): a description inherited from the parent describes the parent.
        written = value.__doc__ or ""
        assert written.strip(), f"semel.{name} has no docstring"
        # Records get a signature as docstring when nobody writes one.
        assert not written.startswith(f"{name}("), f"semel.{name} has no docstring"
