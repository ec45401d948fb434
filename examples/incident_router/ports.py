"""The external systems as this program sees them, and stand-ins for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class Advice:
    text: str
    ticket: str | None = None
    """What to file, if anything."""


class Agent(Protocol):
    """A language model with tools. `key` is the same when a call is repeated: pass it on to what the agent calls."""

    async def advise(self, brief: str, key: str) -> Advice: ...


class Sensors(Protocol):
    """Metrics of a scope, by name."""

    async def read(self, scope: str) -> dict[str, float]: ...


class Tickets(Protocol):
    """A ticket system that files one ticket for each key."""

    async def file(self, text: str, key: str) -> None: ...


@dataclass
class FakeAgent:
    briefs: list[str] = field(default_factory=list)

    async def advise(self, brief: str, key: str) -> Advice:
        self.briefs.append(brief)
        return Advice(f"looked at: {brief}", None if " closed " in brief else f"look after {brief}")


@dataclass
class FakeSensors:
    values: dict[str, float] = field(default_factory=dict)

    async def read(self, scope: str) -> dict[str, float]:
        return dict(self.values)


@dataclass
class FakeTickets:
    filed: dict[str, str] = field(default_factory=dict)

    async def file(self, text: str, key: str) -> None:
        self.filed.setdefault(key, text)


@dataclass
class Outside:
    """All external systems."""

    agent: Agent = field(default_factory=FakeAgent)
    sensors: Sensors = field(default_factory=FakeSensors)
    tickets: Tickets = field(default_factory=FakeTickets)
