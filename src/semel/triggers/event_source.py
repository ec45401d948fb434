"""Where events come from: how a source names its events, and what is done with those that come again or too early."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from semel.contract.durations import Duration
from semel.triggers.fields import Model, PositiveSpan, QueueName, Source, checked, refuse

_HEADER: Final = re.compile(r"header:[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_PATH: Final = re.compile(r"data(?:\.[^.\s]{1,100}){1,10}")


def _read_id_rule(value: object, _: str) -> str:
    if isinstance(value, str) and (_HEADER.fullmatch(value) or _PATH.fullmatch(value)):
        return value
    raise refuse(f"{value!r}: write 'header:' and the name of a header, or a path such as 'data.order.id'")


class EventSource(Model):
    """A source of events: its name, and the rules for what comes from it."""

    name: QueueName
    """What people call it, such as `github`."""
    source: Source = "*"
    """The `source` of its events; `*` stands for any characters."""
    id_from: Annotated[str, BeforeValidator(checked(_read_id_rule))] | None = None
    """Where the id of an event is that has none: `header:X-GitHub-Delivery`, or `data.order.id`."""
    reuse: Literal["reject", "failed_only"] = "reject"
    """Whether an event that is delivered again runs again: never, or if its last run failed."""
    max_future: PositiveSpan | None = None
    """An event that is dated further in the future is parked. Without it, it runs."""
    hash_window: PositiveSpan = Field(default=timedelta(hours=1), json_schema_extra={"default": "1h"})
    """How long an id counts that was made from the content of an event: two real events can look alike."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(
            self,
            *,
            name: str,
            source: str = ...,
            id_from: str | None = ...,
            reuse: Literal["reject", "failed_only"] = ...,
            max_future: Duration | None = ...,
            hash_window: Duration = ...,
        ) -> None: ...
