"""What is wrong with a URL or a role of PostgreSQL is said by its name."""

from __future__ import annotations

from uuid import uuid4

import pytest

import semel
from tests.world import World


def app_of(url: str) -> semel.App:
    return semel.App(url, config=None)


async def test_a_missing_certificate_of_a_url_is_named() -> None:
    async with app_of("postgresql://shop@127.0.0.1:1/shop?sslmode=verify-full&sslrootcert=/nowhere/ca.pem") as app:
        with pytest.raises(semel.ConfigError, match=r"sslrootcert='/nowhere/ca\.pem'.*there is no such file"):
            await app.find("k")


async def test_a_url_without_a_user_under_a_user_id_without_a_name_says_what_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 54321")

    monkeypatch.setattr("getpass.getuser", nobody)
    monkeypatch.delenv("PGUSER", raising=False)
    async with app_of("postgresql://127.0.0.1:1/shop") as app:
        with pytest.raises(semel.ConfigError, match="names no user"):
            await app.find("k")


async def test_a_role_that_may_not_make_tables_finds_nothing_to_migrate(postgres_world: World) -> None:
    role = f"reader_{uuid4().hex}"
    await postgres_world.sql(f"create role {role} login")
    try:
        await postgres_world.sql("revoke create on schema public from public")
        await postgres_world.sql(f"grant select on all tables in schema public to {role}")
        async with app_of(postgres_world.url.replace("postgres@", f"{role}@")) as app:
            assert await app.migrate() == []
    finally:
        await postgres_world.sql(f"drop owned by {role}")
        await postgres_world.sql(f"drop role {role}")
