"""Schedules and subscriptions that code, files and callers declare, and what applying them does to what is stored."""

from __future__ import annotations

from typing import Literal, NamedTuple

from semel.contract.runs import Change, ChangeKind
from semel.engine.schedules import Owner, ScheduleDefinition
from semel.engine.subscriptions import SubscriptionDefinition
from semel.errors import EngineError


class Declared(NamedTuple):
    """A schedule or a subscription that somebody declares."""

    id: str
    owner: Owner
    definition: ScheduleDefinition | SubscriptionDefinition
    instead_of: int | None = None
    """The version that it is made from: another one is not changed. None: it is created, or any version is changed."""

    @property
    def what(self) -> Literal["schedule", "event"]:
        """What it is."""
        return "schedule" if isinstance(self.definition, ScheduleDefinition) else "event"


class VersionChanged(EngineError):
    """A schedule has another version than the one that a change was made from."""


class Stored(NamedTuple):
    """What is stored under the id of a declaration."""

    version: int
    owner: Owner
    definition: bytes


def plan_change(one: Declared, stored: Stored | None, take_over: bool) -> Change:
    """What applying a declaration does. VersionChanged: it was made from another version than the stored one."""
    if one.instead_of is not None and (stored is None or stored.version != one.instead_of):
        raise VersionChanged(f"{one.what} {one.id!r} was changed or deleted meanwhile.")
    if stored is None:
        return Change(ChangeKind.CREATE, one.id, what=one.what)
    if stored.definition == one.definition.to_bytes() and (stored.owner == one.owner or not take_over):
        return Change(ChangeKind.KEEP, one.id, what=one.what)
    if stored.owner != one.owner and not take_over:
        return Change(ChangeKind.FOREIGN, one.id, f"owned by {stored.owner}: --take-over changes it", one.what)
    return Change(ChangeKind.CHANGE, one.id, f"version {stored.version} to {stored.version + 1}", one.what)
