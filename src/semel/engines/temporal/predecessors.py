"""Which requests had a key before the execution that holds it now: one that is sent again is known by its id.

A cluster remembers the request of the newest run under an id only. So every execution that follows another carries
short tags of the requests before it in its memo, and the description of the holder, which is read anyway, tells
whether a request is among them. Ids are compared, never the times in them: the clocks of machines differ. See ADR 38.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from msgspec import structs

from semel.engines.temporal.card import Card
from semel.engines.temporal.listing import quoted
from semel.engines.temporal.names import split
from semel.engines.temporal.reading import Reader, Seen

TAG: Final = 4
"""Characters of a tag. One request in 16 million has the tag of another: then the executions themselves are read."""
MOST_TAGS: Final = 320
"""In one memo: little over a kilobyte, since a cluster warns of memos of two."""
ALWAYS: Final = 64
"""Tags that are passed on where there are too many, so that the last requests are known without reading anything."""
MOST_PAGES: Final = 16
"""Executions, each with its tags, that are read before a request is taken to be new: 4,096 requests back, or more."""


def successor_card(card: Card, holder: Card, holder_id: str, generation: int) -> Card:
    """The card of an execution that follows the `holder` of its key."""
    card = structs.replace(card, generation=generation, previous=holder_id)
    if card.kind == "entity":  # begun by messages, which have keys of their own
        return card
    tags = tag_of(holder.asked) + holder.earlier
    if len(tags) > TAG * MOST_TAGS:
        return structs.replace(card, earlier=tags[: TAG * ALWAYS], beyond=holder_id)
    return structs.replace(card, earlier=tags, beyond=_beyond(holder))


async def find_sent(reader: Reader, holder: Seen, request_id: str, pages: int = 0) -> Seen | None:
    """The execution that a request has started before, be it the holder of the key or one before it.

    None: it has started none, or the cluster has forgotten it. The `pages` are the further executions that may be read
    for their tags, besides the holder; without them nothing is read unless the tag of the request is found.
    """
    seen = holder
    for page in range(pages + 1):
        card = seen.card
        if card.asked == request_id:
            return seen
        if _has_tag(card, request_id) and (found := await _search(reader, seen, request_id)) is not None:
            return found
        beyond = _beyond(card)
        older = None if beyond is None or page == pages else await _read(reader, beyond)
        if older is None:
            return None
        seen = older
    return None


def tag_of(request_id: str) -> str:
    """A request in few characters, whatever its id looks like."""
    return base64.b64encode(hashlib.sha256(request_id.encode()).digest()[:3]).decode()


def _has_tag(card: Card, request_id: str) -> bool:
    tag = tag_of(request_id)
    return any(card.earlier[at : at + TAG] == tag for at in range(0, len(card.earlier), TAG))


def _beyond(card: Card) -> str | None:
    """The newest execution before this one whose request its tags do not tell; older releases wrote no tags."""
    return card.beyond if card.earlier or card.beyond else card.previous


async def _search(reader: Reader, seen: Seen, request_id: str) -> Seen | None:
    """Read the executions that the tags of one stand for, until one came of the request."""
    id_ = seen.info.execution.workflow_id
    for _ in range(len(seen.card.earlier) // TAG):
        before = await _read(reader, seen.card.previous or "")
        if before is None:  # this one was cleaned up; those before it may have been kept for longer
            async for listed in reader.query(f"WorkflowId = {quoted(id_)}"):
                if listed.card.asked == request_id:
                    return await reader.describe(id_, listed.first_run)
            return None
        if before.card.asked == request_id:
            return before
        seen = before
    return None


async def _read(reader: Reader, execution: str) -> Seen | None:
    found = split(execution)
    return None if found is None else await reader.describe(found[1], found[0])
