"""I1 to I4 and I6, read from the tables and the ledger. Everything here must be true when all work is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.faults.site import Site

ENDED = ("completed", "failed", "cancelled", "timed_out")


async def broken(site: Site, *, most: int, keys: Iterable[str] = ()) -> list[str]:
    """What does not hold, in words. `most`: how often an effect may have happened. `keys`: acknowledged ones."""
    found: list[str] = []
    rows = await site.sql("select id, key, status, current, token, attempt, max_attempts, kind from semel_execution")
    left = {
        (execution, token)
        for what, execution, token, owner in await site.sql("select what, execution, token, owner from semel_watch")
        if what == "left" and owner is not None
    }
    for id_, key, status, _, token, attempt, most_attempts, _ in rows:
        if status not in ENDED:
            found.append(f"I1: execution {id_} ({key}) was accepted and is {status}")
        if status == "completed" and (id_, token) not in left:
            found.append(f"I4: execution {id_} was settled under token {token}, which nobody held")
        if attempt > most_attempts:
            found.append(f"I2: execution {id_} ran {attempt} of {most_attempts} attempts")
    # An entity ends, and begins anew; a slot that an operator runs again is another generation.
    once = await site.sql(
        "select key, generation, status from semel_execution where key is not null and kind <> 'entity'"
    )
    holding = Counter((key, generation) for key, generation, status in once if status not in ENDED[1:])
    found += [
        f"I2: {count} completed executions under the key {key}" for (key, _), count in holding.items() if count > 1
    ]
    current = Counter(key for _, key, _, current, *_ in rows if key is not None and current)
    found += [f"I2: {count} current executions under the key {key}" for key, count in current.items() if count > 1]
    found += [f"I1: key {key} was acknowledged and is not there" for key in keys if key not in current]
    found += _effects(site, rows, most)
    found += await _orphans(site, {row[0] for row in rows})
    return found


def _effects(site: Site, rows: list[tuple[Any, ...]], most: int) -> list[str]:
    effects = site.ledger.effects()
    found = [f"I2: effect {key} happened {n} times" for key, n in site.ledger.times().items() if n > most]
    happened = {effect.execution for effect in effects}
    quiet = {"brief", "remembered"}
    for id_, key, status, *_, kind in rows:
        loud = kind == "task" and not (key or "").startswith(tuple(quiet))
        if status == "completed" and id_ not in happened and loud:
            found.append(f"I1: execution {id_} ({key}) completed without its effect")
    return found


async def _orphans(site: Site, ids: set[str]) -> list[str]:
    found = []
    changed = await site.sql("select execution from semel_watch where what = 'changed'")
    found += [f"I3: execution {id_} ended and was written again" for (id_,) in changed]
    for table in ("semel_ready", "semel_later"):
        found += [f"I6: {table} still holds {id_}" for (id_,) in await site.sql(f"select execution from {table}")]
    found += [f"I6: worker {id_} still has its lease" for (id_,) in await site.sql("select id from semel_worker")]
    slips = await site.sql("select executions from semel_slip")
    slipped = {id_ for (text,) in slips for id_ in text.split(",")}
    found += [f"I6: nothing will ever clean execution {id_}" for id_ in ids - slipped]
    dead = {id_ for (id_,) in await site.sql("select execution from semel_dead")}
    failed = {id_ for (id_,) in await site.sql("select id from semel_execution where status <> 'completed'")}
    if dead != failed:
        found.append(f"I6: listed as dead: {sorted(dead)}, but ended badly: {sorted(failed)}")
    return found


async def remains(site: Site) -> list[str]:
    """What is left in the tables after everything was cleaned; nothing should be."""
    tables = (
        "semel_execution", "semel_ready", "semel_later", "semel_dead", "semel_slip", "semel_worker", "semel_flow",
        "semel_journal", "semel_inbox", "semel_published", "semel_attribute", "semel_seen",
    )  # fmt: skip
    counts = [(table, (await site.sql(f"select count(*) from {table}"))[0][0]) for table in tables]
    return [f"I6: {count} rows are left in {table}" for table, count in counts if count]
