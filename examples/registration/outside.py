"""What provisioning calls, as this program sees it, and a stand-in for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID


class Outside(Protocol):
    """A cloud and a mail service. Both do a thing once for each key, however often they are asked."""

    async def create_database(self, tenant: UUID, key: str) -> str: ...

    async def send_invitation(self, email: str, key: str) -> None: ...


@dataclass
class FakeOutside:
    """What was done, by key."""

    databases: dict[str, UUID] = field(default_factory=dict)
    invitations: dict[str, str] = field(default_factory=dict)

    async def create_database(self, tenant: UUID, key: str) -> str:
        self.databases.setdefault(key, tenant)
        return f"db-{tenant.hex[:8]}"

    async def send_invitation(self, email: str, key: str) -> None:
        self.invitations.setdefault(key, email)
