"""Register three tenants while neither relay nor worker runs, and see that each is provisioned once.

    python -m examples.registration.main

It calls the web application in its own process. Run it again in the same folder: the same forms are answered with the
same tenants, and nothing is done outside.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from alembic import command
from alembic.config import Config
from httpx import ASGITransport, AsyncClient, Response
from rich import print

from examples.registration import provisioning
from examples.registration.outside import FakeOutside
from examples.registration.provisioning import app
from examples.registration.web import lifespan, web

FORMS = [{"name": f"{name} Ltd", "slug": name, "email": f"{name}@example.org"} for name in ("ada", "bob", "eve")]


def migrate() -> None:
    command.upgrade(Config(Path(__file__).with_name("alembic.ini")), "head")


async def statuses(client: AsyncClient) -> list[str]:
    answers = [await client.get(f"/tenants/{form['slug']}") for form in FORMS]
    return [answer.json()["status"] for answer in answers]


async def main() -> None:
    provisioning.outside = done = FakeOutside()
    async with lifespan(web), AsyncClient(transport=ASGITransport(web), base_url="http://registration") as client:
        answers: list[Response] = [await client.post("/tenants", json=form) for form in FORMS]
        again = [await client.post("/tenants", json=form) for form in FORMS]
        print("registered:", *[answer.status_code for answer in answers])
        print("sent again:", *[answer.status_code for answer in again])
        print("same tenants:", [one.json()["id"] for one in answers] == [one.json()["id"] for one in again])
        print("waiting in the outbox:", (await app.outbox.state()).pending)
        async with app.relay(), app.worker():
            while (found := await statuses(client)) != ["active"] * 3:
                await asyncio.sleep(0.05)
        print("now:", *found)
        print("databases made by this run:", len(done.databases))


if __name__ == "__main__":
    migrate()
    asyncio.run(main())
