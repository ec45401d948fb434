"""How work ends: in batches, only by the worker that holds it, and reported once it is written."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from semel.contract.lifecycle import Status
from semel.define.context import Running
from semel.engine import undecodable_input
from semel.engines.journal.claims import Claim
from semel.engines.journal.read import dump_error, get, load_error
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, procedure
from semel.runtime.attempt import AttemptOutcome
from semel.runtime.event_log import Success, log_successes

if TYPE_CHECKING:
    from semel.engines.journal.worker import JournalWorker

MOST_AT_ONCE = 200
"""As many ids fit into one NOTIFY."""


class Ending(Struct, frozen=True):
    """What became of one claim. `retry_in` seconds: another attempt; None: `status` is final."""

    claim: Claim
    status: Status
    output: bytes | None = None
    error: bytes | None = None
    retry_in: float | None = None
    undecodable: bool = False
    """The function was not called: its input does not fit the signature that this worker has."""
    exception: BaseException | None = None
    """What the last attempt raised, for who watches this worker; it is not written down."""
    seconds: float | None = None
    """How long the attempt took; None: nobody measured it."""

    @property
    def message(self) -> str:
        """What went wrong, in words."""
        error = load_error(self.error)
        return "" if error is None else error.message


def ending_of(claim: Claim, ran: AttemptOutcome, seconds: float | None) -> Ending:
    """What became of a claim, from what became of the attempt that was made of it."""
    error = None if ran.error is None else dump_error(ran.error)
    return Ending(claim, ran.status, ran.output, error, ran.retry_in, ran.undecodable, ran.exception, seconds)


@procedure(ConnectionRole.SETTLE, atomic=True)
def settle(worker: int, endings: list[Ending], waited: set[int] | None = None) -> Script[set[int]]:
    """Write endings; the tokens of claims that were refused, since they are no longer this worker's.

    The tokens of those that a flow waited for, or may have, are put into `waited`.
    """
    if any(e.claim.parent for e in endings):  # who wait for them are woken in one order by all, and never in a circle
        endings = sorted(endings, key=lambda e: e.claim.parent or "")
    rows = [(*e.claim.fence, e.status.value, e.output, e.error) for e in endings]
    found = yield SqlBatch("settle", rows, (worker,))
    written = _tokens(found)
    if waited is not None:  # of what an earlier try has written, whose reply was lost, nothing is known
        waited |= _tokens(found, 1) | {e.claim.token for e in endings if e.claim.token not in written}
    return (yield from _missing(endings, written))


@procedure(ConnectionRole.SETTLE, atomic=True)
def put_off(worker: int, endings: list[Ending]) -> Script[set[int]]:
    """The same for attempts that will be repeated, unless someone wants them cancelled: that is their end then."""
    rows = [(*e.claim.fence, e.error, round((e.retry_in or 0.0) * 1_000_000)) for e in endings]
    written = _tokens((yield SqlBatch("retry", rows, (worker,))))
    rest = [(*e.claim.fence, Status.CANCELLED.value, None, None) for e in endings if e.claim.token not in written]
    if rest:
        written |= _tokens((yield SqlBatch("settle", rest, (worker,))))
    return (yield from _missing(endings, written))


@procedure(ConnectionRole.SETTLE)
def leave(
    worker: int, endings: list[Ending], patience: timedelta, failed: list[Ending] | None = None
) -> Script[set[int]]:
    """Put tasks back that this worker cannot decode, for one that can; those that nobody could for too long fail.

    No attempt is counted. Since when is kept with the error. Those that fail are put into `failed`.
    """
    found = yield SqlBatch("last_errors", [(e.claim.execution,) for e in endings])
    errors: dict[str, tuple[bytes | None, int]] = {id_: (error, now) for id_, error, now in found}
    over: list[Ending] = []
    again: list[Ending] = []
    for ending in endings:
        stored, now = errors.get(ending.claim.execution, (None, 0))
        since = undecodable_input.load_since(stored) or now
        delay = undecodable_input.next_offer((now - since) / 1_000_000, patience)
        error = load_error(ending.error) or undecodable_input.NOT_DECODABLE
        if delay is None:
            over.append(replace(ending, error=dump_error(undecodable_input.given_up(error, patience))))
        else:
            kept = undecodable_input.dump_waiting(undecodable_input.waiting(error, patience), since)
            again.append(replace(ending, error=kept, retry_in=delay))
    if failed is not None:
        failed[:] = over
    refused = (yield from settle.script(worker, over)) if over else set()
    if again:
        refused |= yield from put_off.script(worker, again)
        if uncounted := [(e.claim.execution, e.claim.attempt) for e in again if e.claim.token not in refused]:
            yield SqlBatch("uncount_attempts", uncounted)
    return refused


def _tokens(rows: list[Row], column: int = 0) -> set[int]:
    return {int(token) for row in rows if row[column] for token in row[column].split(",")}


def _missing(endings: list[Ending], written: set[int]) -> Script[set[int]]:
    """What was not written now may have been written by a try whose reply was lost."""
    missing = [e.claim for e in endings if e.claim.token not in written]
    if not missing:
        return set()
    earlier = yield SqlBatch("settled", [(c.execution, c.token) for c in missing])
    return {c.token for c in missing} - {row[1] for row in earlier}


MOST_REPORTED = 100
"""Executions that are told of one by one when they fail because their workers died; the rest are in the database."""


def report_endings(
    worker: JournalWorker, final: list[Ending], again: list[Ending], given_up: list[Ending], refused: set[int]
) -> None:
    """Tell who listens what became of tasks, now that it is written. `refused` are tokens of claims that were lost."""
    events = worker.events
    if refused:
        for ending in (*final, *again, *given_up):
            if ending.claim.token in refused:
                events.lease_lost(_running(worker, ending.claim))
        final, again, given_up = (
            [e for e in endings if e.claim.token not in refused] for endings in (final, again, given_up)
        )
    if not events.observed:  # as a rule: then only the log wants to know of what ended well, if it does
        if events.wants_ends:
            log_successes(_success(e.claim, e) for e in final if e.error is None)
        final = [e for e in final if e.error is not None]
    for ending in final:
        error, about = load_error(ending.error), _running(worker, ending.claim)
        events.ended(about, ending.status, ending.seconds, error, ending.exception)
    for ending in given_up:
        events.ended(_running(worker, ending.claim), Status.FAILED, None, load_error(ending.error))
    for ending in again:
        error, about = load_error(ending.error), _running(worker, ending.claim)
        events.retried(about, ending.status, error, ending.retry_in or 0.0)


async def report_lost(worker: JournalWorker, ids: list[str]) -> None:
    """Tell who listens of executions that failed since the workers of their last attempts died."""
    for id_ in ids[:MOST_REPORTED]:
        found = await worker.store.run(get, worker.namespace, id_)
        if found is not None:  # else it belongs to another namespace of this database
            running = Running(
                found.id,
                found.key,
                found.name,
                found.kind,
                worker.namespace,
                found.queue,
                found.attempt,
                found.max_attempts,
                found.generation,
                0,
            )
            worker.events.ended(running, found.status, None, found.error)


def _success(claim: Claim, ending: Ending) -> Success:
    return (claim.kind, claim.name, claim.key, claim.execution, claim.attempt, ending.status.value, ending.seconds)


def _running(worker: JournalWorker, claim: Claim) -> Running:
    return Running(
        claim.execution,
        claim.key,
        claim.name,
        claim.kind,
        worker.namespace,
        worker.intake.queue_of(claim.lane),
        claim.attempt,
        claim.max_attempts,
        claim.generation,
        claim.token,
    )
