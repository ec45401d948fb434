"""Take away one guard of Django's backend at a time: a named promise must notice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest

from semel.django import registered_tasks, task_backend
from semel.transactional.outbox import events, verbs
from tests.django_app import test_task_backend as promises
from tests.django_app.site import Site

pytestmark = pytest.mark.proof
Mutant = Callable[[pytest.MonkeyPatch], None]


def start_at_once(patch: pytest.MonkeyPatch) -> None:
    """Starts are committed by themselves, whatever transaction is open."""

    @contextmanager
    def elsewhere(self: Any) -> Any:
        with self.app.bind(None):
            yield None

    patch.setattr(task_backend.SemelBackend, "_transaction", elsewhere)


def take_any_argument(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(task_backend, "_checked_arguments", lambda task, args, kwargs: (list(args), dict(kwargs)))


def forget_the_id(patch: pytest.MonkeyPatch) -> None:
    """A start without a key goes by nothing in the outbox."""
    row = events.row_of_start
    patch.setattr(verbs, "row_of_start", lambda *given: row(*given)._replace(aggregate_id=None))


def forget_the_key(patch: pytest.MonkeyPatch) -> None:
    """`using(task_id=…)` is heard by nobody."""
    patch.setattr(task_backend.SemelTask, "using", lambda self, task_id=None, **more: self)


def finish_at_every_try(patch: pytest.MonkeyPatch) -> None:
    note = registered_tasks._Attempt.note_failure
    patch.setattr(registered_tasks._Attempt, "note_failure", lambda self, error: note(self, error) or True)


MUTANTS: list[tuple[Mutant, Callable[[Site], None]]] = [
    (start_at_once, promises.test_rolled_back_it_never_was),
    (start_at_once, promises.test_a_savepoint_that_is_rolled_back_takes_it_along),
    (take_any_argument, promises.test_a_bad_argument_writes_nothing_and_leaves_the_transaction_usable),
    (forget_the_id, promises.test_committed_it_runs),
    (forget_the_key, promises.test_a_duplicate_runs_once_and_has_the_same_id),
    (finish_at_every_try, promises.test_failures_and_signals),
]


@pytest.mark.parametrize(("mutant", "promise"), MUTANTS, ids=lambda one: one.__name__)
def test_a_promise_notices(
    mutant: Mutant, promise: Callable[[Site], None], sqlite_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    try:
        promise(sqlite_site)
    except (Exception, pytest.fail.Exception):
        return
    pytest.fail(f"{promise.__name__} holds without it")
