"""Take away one guard of the outbox at a time: a named promise must notice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from semel.engine.ids import new_id
from semel.engine.protocol import Message
from semel.transactional import statements
from semel.transactional.outbox import dispatch, events, relay, scripts, verbs
from tests.conftest import new_world
from tests.outbox import test_commit_and_relay, test_redrive_processed, test_relays
from tests.outbox.conftest import new_place
from tests.outbox.places import Place
from tests.outbox.shop import OutboxShop
from tests.world import SOON, World

pytestmark = pytest.mark.proof
Promise = Callable[[World, Place], Awaitable[None]]
Mutant = Callable[[pytest.MonkeyPatch], None]


async def a_message_that_is_sent_again_counts_once(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    points = shop.app.entity(shop.points, "ada")
    async with place.transaction() as connection:
        await points.send(shop.points.add, 5, connection=connection)
    async with world.worker(shop.app):
        for _ in range(2):
            await shop.relay_all()
            await place.sql("update outbox_events set status = 'pending'")
            await place.due_now()
        assert await points.ask(shop.points.add, 0, timeout=SOON) == 5


async def the_relay_continues_the_trace(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    seen: list[int] = []

    class Heard:
        """An engine that says in which trace it was called."""

        def __getattr__(self, name: str) -> Any:
            return getattr(shop.app.engine, name)

        async def start(self, request: Any) -> Any:
            seen.append(trace.get_current_span().get_span_context().trace_id)
            return await shop.app.engine.start(request)

    with trace.use_span(trace.NonRecordingSpan(trace.SpanContext(7, 8, True, trace.TraceFlags(1)))):
        await shop.order(1)
    engine: Any = Heard()
    async with shop.relay(engine) as relay:
        await relay.step()
    assert seen == [7]


def edit(name: str, old: str, new: str = "") -> Mutant:
    """Change a statement."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        read = statements.read_queries

        def changed(folder: Any) -> dict[str, str]:
            queries = read(folder)
            if name in queries:
                assert old in queries[name], queries[name]
                queries[name] = queries[name].replace(old, new)
            return queries

        patch.setattr(statements, "read_queries", changed)

    return mutate


def put(owner: Any, name: str, value: Any) -> Mutant:
    """Put something in the place of a guard."""
    return lambda patch: patch.setattr(owner, name, value)


def without_key(namespace: str, message: Message, options: events.RowOptions) -> events.NewRow:
    return events.row_of_message(namespace, Message(message.start, message.name, message.payload, None), options)


KEYLESS = put(verbs, "row_of_message", without_key)
NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
MUTANTS: dict[str, tuple[Promise, Mutant]] = {
    **{
        f"{mark}: the token": (
            test_relays.test_who_has_lost_the_lease_marks_nothing,
            edit(mark, "lease_token = ?1", "?1 = ?1"),
        )
        for mark in ("mark_processed", "mark_error", "mark_failed", "put_off")
    },
    "mark_processed: the end of the lease": (
        test_relays.test_who_has_lost_the_lease_marks_nothing,
        edit("mark_processed", f"next_attempt_at > {NOW}", "true"),
    ),
    "lease_events: for a time": (
        test_relays.test_who_has_lost_the_lease_marks_nothing,
        edit("lease_events", "'now', ?3 ||", "'now', -?3 ||"),
    ),
    "due_events: an ordered row waits": (
        test_relays.test_an_ordered_row_waits_for_the_earlier_ones,
        edit("due_events", "e.id < o.id", "false"),
    ),
    "due_events: a failed one holds": (
        test_relays.test_an_ordered_row_waits_for_the_earlier_ones,
        edit("due_events", "e.on_failure = 'hold'", "false"),
    ),
    "due_events: and lets pass where that is wanted": (
        test_relays.test_an_ordered_row_waits_for_the_earlier_ones,
        edit("due_events", "e.on_failure = 'hold'", "true"),
    ),
    "due_events: the oldest first": (
        test_relays.test_the_oldest_rows_come_first,
        edit("due_events", "order by next_attempt_at, id", "order by id desc"),
    ),
    "note_unavailable: a pause for all": (
        test_relays.try_an_engine_that_is_away,
        put(scripts, "outage_pause", lambda failures: 0.0),
    ),
    "take_probe: on PostgreSQL one relay tries": (
        test_relays.look_at_once,
        edit("take_probe", "and retry_at <= now()"),
    ),
    "trace: the relay goes on with it": (
        the_relay_continues_the_trace,
        put(dispatch, "continue_trace", lambda row: contextlib.nullcontext()),
    ),
    "trace: it is in the row": (the_relay_continues_the_trace, put(verbs, "current_trace", lambda: None)),
    "mark_error: later and later": (
        test_relays.test_bad_rows_are_in_nobodys_way,
        put(scripts, "row_pause", lambda retries: 0.0),
    ),
    "redrive_event: failed ones only": (
        test_relays.test_a_failed_row_is_tried_again_when_asked,
        edit("redrive_event", "and status = 'failed'"),
    ),
    "processed_since: rows of the namespace": (
        test_redrive_processed.relay_again_after_a_restore,
        edit("processed_since", "namespace = ?1", "?1 = ?1"),
    ),
    "processed_since: not before that time": (
        test_redrive_processed.relay_again_after_a_restore,
        edit("processed_since", "and processed_at >= ", "and processed_at <> "),
    ),
    "redrive_processed: no attempts are counted, and nothing is left of the last time": (
        test_redrive_processed.relay_again_after_a_restore,
        edit("redrive_processed", "processed_at = null, execution_id = null", "lease_token = null"),
    ),
    "put off: a row without an answer comes after the others": (
        test_relays.test_one_row_without_an_answer_does_not_stop_the_others,
        edit(
            "put_off",
            "next_attempt_at = strftime('%Y-%m-%d %H:%M:%f', 'now', ?3 || ' seconds')",
            "next_attempt_at = coalesce(created_at, ?3)",
        ),
    ),
    "request_id: the same at every try": (
        test_relays.test_carried_out_and_not_marked_it_is_carried_out_once,
        put(events, "request_id", lambda row: new_id()),
    ),
    "is_newer: left to a newer release": (
        test_relays.test_a_relay_without_the_function_leaves_the_row,
        put(events, "is_newer", lambda payload: False),
    ),
    "a KeyConflict is not tried again": (
        test_commit_and_relay.test_other_input_is_a_conflict_on_the_row_and_for_the_handle,
        put(relay, "PERMANENT", ()),
    ),
    "signals after starts": (
        test_commit_and_relay.test_a_workflow_its_signal_a_message_and_a_cancel,
        put(relay, "STARTS", frozenset({events.SIGNAL, events.CANCEL})),
    ),
    "send: a key in any case": (a_message_that_is_sent_again_counts_once, KEYLESS),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_missing_guard_is_noticed(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    promise, mutate = MUTANTS[name]

    def kept() -> None:
        folder = tmp_path / new_id()
        folder.mkdir()
        kind = "postgres" if "PostgreSQL" in name else "sqlite"
        world, place = new_world("sqlite", folder, request), new_place(kind, folder, request)

        async def main() -> None:
            try:
                await asyncio.wait_for(promise(world, place), 100)
            finally:
                await world.close()

        asyncio.run(main())

    kept()
    with monkeypatch.context() as patch:
        patch.setattr(verbs, "_statements", {})
        mutate(patch)
        if name.startswith("put off"):
            patch.setattr(test_relays, "eventually", a_few_tries)
        with pytest.raises((AssertionError, TimeoutError, ValueError, pytest.fail.Exception)):
            kept()


async def a_few_tries(condition: Callable[[], Awaitable[bool]]) -> None:
    """As `eventually`, for what does not happen: a few tries are enough."""
    for _ in range(8):
        if await condition():
            return
    raise AssertionError("did not happen")
