"""`migrate` brings a namespace to what is needed and never takes anything away; `check` refuses what is weaker."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from semel.engines.temporal.connect import Target, connect
from semel.engines.temporal.names import ATTRIBUTE, SCHEDULED_FOR
from semel.engines.temporal.namespace import check, look, migrate
from semel.errors import ConfigError, EngineUnavailable
from semel.testing.temporal_server import TemporalServer, free_port

_numbers = itertools.count(1)


async def client_of(server: TemporalServer) -> Client:
    return await connect(Target(server.address, f"ready-{next(_numbers)}"))


def days(number: float) -> timedelta:
    return timedelta(days=number)


async def test_a_new_namespace_has_all_that_is_needed(temporal_server: TemporalServer) -> None:
    client = await client_of(temporal_server)
    said: list[str] = []
    done = await migrate(client, days(40), said.append)
    assert done == [
        f"namespace {client.namespace}, which keeps for 40d",
        f"search attribute {ATTRIBUTE}",
        f"search attribute {SCHEDULED_FOR}",
        "search attribute scope",
        "search attribute incidentKey",
    ]
    assert len(said) == 5
    assert await migrate(client, days(40)) == []
    await check(client, days(40))


async def test_retention_is_raised_and_never_lowered(temporal_server: TemporalServer) -> None:
    client = await client_of(temporal_server)
    await migrate(client, days(2))
    assert await migrate(client, days(90)) == [f"retention of {client.namespace}: 2d to 90d"]
    assert await migrate(client, days(1)) == []
    assert await migrate(client, timedelta(0)) == []
    kept = await look(client)
    assert kept is not None
    assert kept.retention == days(90)
    assert await migrate(client, days(36_500)) == [f"retention of {client.namespace}: 90d to forever"]


async def test_many_may_migrate_at_once(temporal_server: TemporalServer) -> None:
    client = await client_of(temporal_server)
    await asyncio.gather(*(migrate(client, days(8)) for _ in range(8)))
    await check(client, days(8))
    await asyncio.gather(*(migrate(client, days(9)) for _ in range(8)))
    await check(client, days(9))


async def test_a_shorter_retention_is_refused_and_says_what_to_do(temporal_server: TemporalServer) -> None:
    client = await client_of(temporal_server)
    await migrate(client, days(7))
    await check(client, days(7))
    with pytest.raises(ConfigError) as caught:
        await check(client, days(30), "workflow 'order'")
    assert caught.value.message.startswith(
        f"namespace '{client.namespace}' keeps for 7d, and workflow 'order' needs 30d. Run semel migrate"
    )
    assert "records=" in caught.value.message


async def test_a_missing_namespace_is_named(temporal_server: TemporalServer) -> None:
    client = await client_of(temporal_server)
    assert await look(client) is None
    with pytest.raises(ConfigError, match=f"no namespace '{client.namespace}' .* Run: semel migrate"):
        await check(client, days(1))


async def test_an_attribute_of_another_type_is_found_out(temporal_server: TemporalServer) -> None:
    client = await client_of(temporal_server)
    request = RegisterNamespaceRequest(namespace=client.namespace)
    request.workflow_execution_retention_period.FromTimedelta(days(3))
    await client.workflow_service.register_namespace(request)
    with pytest.raises(ConfigError, match=f"has no search attribute {ATTRIBUTE}"):
        await check(client, days(1))
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(
            namespace=client.namespace,
            search_attributes={ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD},
        )
    )
    for trial in (migrate(client, days(3)), check(client, days(3))):
        with pytest.raises(ConfigError, match="is a Keyword and has to be a KeywordList"):
            await trial


async def refuse(*_: object, **__: object) -> None:
    raise RPCError("Request unauthorized.", RPCStatusCode.PERMISSION_DENIED, b"")


async def test_who_may_not_list_attributes_still_knows_the_type(
    temporal_server: TemporalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await client_of(temporal_server)
    await migrate(client, days(3))
    monkeypatch.setattr(client.operator_service, "list_search_attributes", refuse)
    await check(client, days(3))


async def test_where_namespaces_are_not_ours_it_says_who_can(
    temporal_server: TemporalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal Cloud refuses both; here the server's answer is made up, since no other server is at hand."""
    client = await client_of(temporal_server)
    monkeypatch.setattr(client.workflow_service, "register_namespace", refuse)
    with pytest.raises(ConfigError, match=r"does not let us register namespace .* Temporal Cloud .* retention of 40d"):
        await migrate(client, days(40))
    monkeypatch.undo()
    await migrate(client, days(1))
    monkeypatch.setattr(client.workflow_service, "register_namespace", refuse)
    assert await migrate(client, days(1)) == []
    monkeypatch.setattr(client.workflow_service, "update_namespace", refuse)
    with pytest.raises(ConfigError, match=r"raise the retention of .* from 1d to 40d: .* records="):
        await migrate(client, days(40))


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(EngineUnavailable, match=r"the Temporal server at .* cannot be reached .* semel temporal dev"):
        await connect(Target(f"127.0.0.1:{free_port()}", "default"))
    await connect(Target(f"127.0.0.1:{free_port()}", "default"), lazy=True)


async def test_what_a_test_needs_is_ready_at_once(temporal_server: TemporalServer) -> None:
    temporal_server.prepare("quick", days(3))
    client = await connect(Target(temporal_server.address, "quick"))
    found = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="quick"))
    assert found.config.workflow_execution_retention_ttl.ToTimedelta() == days(3)
