"""What must be true of flows when all work is done: I1, I2, I6 and I7, read from the tables and the ledger."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from semel.errors import SemelError
from semel.flow import entries, snapshot
from semel.flow.entries import Asked, Resolved
from semel.flow.instance import Instance
from semel.flow.snapshot import Snapshot
from semel.flow.turn import Identity
from tests.faults.shop import Shop
from tests.faults.site import Site


async def recorded(site: Site) -> dict[str, Any]:
    """The steps whose result is in a journal now: they must not run again. And how many effects there were."""
    steps = []
    for execution, rows in (await _journals(site)).items():
        deeds = [entry for body in rows for entry in entries.load(body)]
        asked = {deed.command: deed.name for deed in deeds if isinstance(deed, Asked) and deed.kind == "step"}
        answered = {deed.command for deed in deeds if isinstance(deed, Resolved)}
        steps += [(execution, name) for number, name in asked.items() if number in answered]
    once = {step for step in steps if steps.count(step) == 1}
    return {"steps": once, "effects": len(site.ledger.effects())}


async def flaws(site: Site, shop: Shop, memo: dict[str, Any], done: dict[str, Any]) -> list[str]:
    """What does not hold, in words."""
    found = []
    for effect in site.ledger.effects()[done["effects"] :]:
        found += [
            f"I2: step {name!r} of {execution} was recorded and ran again"
            for execution, name in done["steps"]
            if effect.execution == execution and f":step:{name}:" in effect.key
        ]
    for table in ("semel_flow", "semel_inbox"):
        found += [f"I6: {table} still holds {id_}" for (id_,) in await site.sql(f"select execution from {table}")]
    found += await _ends(site, memo)
    found += await _totals(site, memo)
    found += await _replays(site, shop)
    keys = [effect.key for effect in site.ledger.effects()]
    for name in memo.get("must", []):
        if not any(f":step:{name}:" in key for key in keys):
            found.append(f"I1: step {name!r} was to run, and did not")
    return found


async def _ends(site: Site, memo: dict[str, Any]) -> list[str]:
    found = []
    for key, (status, output) in memo.get("ends", {}).items():
        rows = await site.sql(
            f"select status, output from semel_execution where kind = 'workflow' and key = '{key}' and current"
            + (" = 1" if site.engine == "sqlite" else "")
        )
        told = [(row[0], None if row[1] is None else json.loads(bytes(row[1]))) for row in rows]
        if told != [(status, output)]:
            found.append(f"I1: workflow {key} was to end {status} with {output}, and is {told}")
    for key, value in memo.get("published", {}).items():
        rows = await site.sql(
            "select p.body from semel_published p join semel_execution x on x.id = p.execution "
            f"where x.key = '{key}' and p.name = 'state'"
        )
        if [json.loads(bytes(body)) for (body,) in rows] != [value]:
            found.append(f"I2: {key} was to publish {value!r}, and has published {rows}")
    return found


async def _totals(site: Site, memo: dict[str, Any]) -> list[str]:
    found = []
    till = Counter(who for (who,) in await site.sql("select who from till"))
    if till != Counter(memo.get("till", {})):
        found.append(f"I2: the till holds {dict(till)}, and was to hold {memo.get('till')}")
    if "total" in memo:
        rows = await site.sql("select body from semel_published where name like 'total-%'")
        total = sum(int(body) for (body,) in rows)
        if total != memo["total"]:
            found.append(f"I2: the messages of the entity add up to {total}, and were to make {memo['total']}")
    return found


async def _replays(site: Site, shop: Shop) -> list[str]:
    """Every journal of a workflow is done again, from its input or from what its last run began with."""
    found = []
    rows = await site.sql("select id, key, name, generation, input from semel_execution where kind = 'workflow'")
    begun = {id_: bytes(body) for id_, body in await site.sql(BEGUN)}
    journals = await _journals(site)
    for execution, key, name, generation, payload in rows:
        journal = [entry for body in journals.get(execution, []) for entry in entries.load(body)]
        start = snapshot.load(begun[execution]) if execution in begun else Snapshot(bytes(payload))
        who = Identity(execution, key, name, "default", "default", generation, bytes(payload))
        instance = Instance(shop.app.tasks.workflow(name, None), who, shop.app.settings, start)
        try:
            instance.replay(journal)
        except SemelError as error:
            found.append(f"I7: the journal of {key} cannot be done again: {error}")
        finally:
            instance.close()
    return found


BEGUN = "select execution, body from semel_journal where token = 0"
"""What the last run of an ended flow began with."""


async def _journals(site: Site) -> dict[str, list[bytes]]:
    journals: dict[str, list[bytes]] = {}
    rows = await site.sql("select execution, body from semel_journal where token > 0 order by execution, n")
    for execution, body in rows:
        journals.setdefault(execution, []).append(bytes(body))
    return journals
