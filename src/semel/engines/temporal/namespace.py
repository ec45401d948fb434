"""What Semel needs of a namespace: that it exists, keeps long enough, and has search attributes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    RegisterNamespaceRequest,
    UpdateNamespaceRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from semel.contract.durations import FOREVER, format_duration
from semel.contract.retention import TASK_RETENTION, WORKFLOW_RETENTION, keeping
from semel.define.entity import Entity
from semel.define.registry import Definition
from semel.engines.temporal.names import ATTRIBUTE, KEYWORDS, SCHEDULED_FOR
from semel.errors import ConfigError, EngineError, EngineUnavailable, SemelError, phrase
from semel.settings import QueueSettings, Settings

T = TypeVar("T")
KNOWN_WITHIN, KNOWN_EVERY = 20.0, 0.5
RAISES = 5

SEARCH_ATTRIBUTES: Final[Mapping[str, IndexedValueType.ValueType]] = {
    ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    SCHEDULED_FOR: IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
    **dict.fromkeys(KEYWORDS, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD),
}
"""The search attributes, and the types that they have to be of."""
LEAST = timedelta(days=1)
"""Servers refuse to keep for less; some take an hour."""
NOT_OURS = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.UNAUTHENTICATED)
"""How servers answer where namespaces are not made by their users, as on Temporal Cloud."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A namespace as the server has it."""

    retention: timedelta
    types: Mapping[str, int]
    """The types of its search attributes, by their names."""

    @property
    def indexed(self) -> bool:
        """Are the search attributes there, and of the right types?"""
        return not self.missing and self.wrong is None

    @property
    def missing(self) -> dict[str, IndexedValueType.ValueType]:
        """The search attributes that there are not, and the types that they have to be of."""
        return {name: wanted for name, wanted in SEARCH_ATTRIBUTES.items() if name not in self.types}

    @property
    def wrong(self) -> tuple[str, str, str] | None:
        """A search attribute of another type than it has to be: its name, its type and that type."""
        for name, wanted in SEARCH_ATTRIBUTES.items():
            if self.types.get(name, wanted) != wanted:
                return name, type_name(self.types[name]), type_name(wanted)
        return None


async def look(client: Client) -> Kept | None:
    """What the server has of the client's namespace. None: there is no such namespace."""
    found = await _describe(client)
    if found is None:
        return None
    retention = found.config.workflow_execution_retention_ttl.ToTimedelta()
    return Kept(retention, await _attributes(client, found))


async def migrate(client: Client, needs: timedelta, progress: Callable[[str], None] = lambda _: None) -> list[str]:
    """Bring the namespace to what is needed; what was done. Safe at any time, by several at once, and again.

    Retention is only ever raised. What came of it is read back: a server may say yes and do otherwise. ConfigError
    says what the server does not allow, and who can do it instead.
    """
    done: list[str] = []
    wanted = min(max(needs, LEAST), FOREVER)
    progress(f"namespace {client.namespace}")
    # Not looked for first: a server that was asked for a missing one remembers for a second that it is missing.
    refused = await _register(client, wanted)
    if refused is None:
        done.append(f"namespace {client.namespace}, which keeps for {format_duration(wanted)}")
    kept = await look(client)
    if kept is None:
        raise refused or EngineUnavailable(f"namespace {client.namespace!r} is registered, and not yet to be seen.")
    if kept.retention < wanted:
        progress(f"retention of {client.namespace}: {format_duration(kept.retention)} to {format_duration(wanted)}")
        await _raise(client, kept.retention, wanted)
        done.append(f"retention of {client.namespace}: {format_duration(kept.retention)} to {format_duration(wanted)}")
    if missing := kept.missing:
        for name in missing:
            progress(f"search attribute {name}")
        await _index(client, missing)
        done += [f"search attribute {name}" for name in missing]
    await check(client, wanted)
    return done


async def check(client: Client, needs: timedelta, whose: str = "the longest declared window") -> None:
    """ConfigError unless the namespace is there, keeps at least that long, and has the search attribute.

    `whose` names what needs it, such as "workflow 'order'". Equal or refused: a namespace that keeps for less would
    forget keys that the code was promised to find.
    """
    kept = await look(client)
    name = client.namespace
    if kept is None:
        raise ConfigError(
            f"there is no namespace {name!r} on this Temporal server. Run: semel migrate --namespace {name}"
        )
    if kept.retention < needs:
        raise ConfigError(
            f"namespace {name!r} keeps for {format_duration(kept.retention)}, and {whose} needs "
            f"{format_duration(needs)}. Run semel migrate, which raises it; or give the App a records= database, which "
            "remembers longer; or declare less (retention=, dedup_window=)."
        )
    if kept.missing:
        raise ConfigError(f"namespace {name!r} has no search attribute {min(kept.missing)}. Run: semel migrate")
    if kept.wrong is not None:
        attribute, found, wanted = kept.wrong
        raise ConfigError(
            f"the search attribute {attribute} of namespace {name!r} is a {found} and has to be a {wanted}. Its type "
            "cannot be changed: remove it, or use another namespace."
        )


def type_name(number: int) -> str:
    """KeywordList, as Temporal's own tools spell it."""
    words = IndexedValueType.Name(IndexedValueType.ValueType(number)).removeprefix("INDEXED_VALUE_TYPE_")
    return "".join(word.capitalize() for word in words.split("_"))


async def _describe(client: Client) -> DescribeNamespaceResponse | None:
    try:
        return await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace), retry=True
        )
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise namespace_error(error, f"look at namespace {client.namespace!r}") from error


async def _attributes(client: Client, found: DescribeNamespaceResponse) -> Mapping[str, int]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        answer = await _once_known(lambda: client.operator_service.list_search_attributes(request, retry=True))
    except RPCError as error:
        if error.status in NOT_OURS:
            return _aliased(found.config.custom_search_attribute_aliases)
        raise namespace_error(error, f"list the search attributes of {client.namespace!r}") from error
    return answer.custom_attributes


def _aliased(aliases: Mapping[str, str]) -> dict[str, int]:
    """Types by the columns that have these names: KeywordList01. For those who may not list search attributes."""
    numbers = {type_name(number): number for number in IndexedValueType.values()}
    columns = {alias: re.sub(r"\d+$", "", column) for column, alias in aliases.items()}
    return {alias: numbers[column] for alias, column in columns.items() if column in numbers}


async def _once_known(call: Callable[[], Awaitable[T]]) -> T:
    """A server of several machines needs seconds until all of them know a namespace that is new."""
    for _ in range(int(KNOWN_WITHIN / KNOWN_EVERY)):
        try:
            return await call()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        await asyncio.sleep(KNOWN_EVERY)
    return await call()


async def _register(client: Client, retention: timedelta) -> SemelError | None:
    """Register the namespace. It may be there already, also where we may not register any: then why it was not done."""
    what = f"register namespace {client.namespace!r}"
    request = RegisterNamespaceRequest(
        namespace=client.namespace,
        workflow_execution_retention_period=_duration(retention),
        description="made by semel migrate",
    )
    try:
        await client.workflow_service.register_namespace(request, retry=True)
    except RPCError as error:
        if error.status in NOT_OURS:
            return _not_allowed(what, f"Make it there, with a retention of {format_duration(retention)}")
        if error.status is RPCStatusCode.ALREADY_EXISTS:
            return namespace_error(error, what)
        raise namespace_error(error, what) from error
    return None


async def _raise(client: Client, old: timedelta, new: timedelta) -> None:
    """Raise the retention. The server knows no "only if it is less", so of two at once the lower may come last: each
    looks again at what came of it, and the higher one says it again."""
    config = NamespaceConfig(workflow_execution_retention_ttl=_duration(new))
    request = UpdateNamespaceRequest(namespace=client.namespace, config=config)
    for _ in range(RAISES):
        try:
            await client.workflow_service.update_namespace(request, retry=True)
        except RPCError as error:
            if error.status in (*NOT_OURS, RPCStatusCode.INVALID_ARGUMENT):
                raise _not_allowed(
                    f"raise the retention of {client.namespace!r} from {format_duration(old)} to "
                    f"{format_duration(new)}",
                    "Raise it there, or give the App a records= database, which remembers longer, or declare less",
                ) from error
            raise namespace_error(error, f"change namespace {client.namespace!r}") from error
        kept = await look(client)
        if kept is not None and kept.retention >= new:
            return


async def _index(client: Client, missing: Mapping[str, IndexedValueType.ValueType]) -> None:
    """Add search attributes, all in one request; one by one where somebody else has just added some of them."""
    request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
    try:
        await _once_known(lambda: client.operator_service.add_search_attributes(request, retry=True))
    except RPCError as error:
        if error.status is RPCStatusCode.ALREADY_EXISTS:
            for name, type_ in missing.items() if len(missing) > 1 else ():
                await _index(client, {name: type_})
            return
        names = ", ".join(missing)
        if error.status in NOT_OURS:
            raise _not_allowed(
                f"add the search attribute {names} to {client.namespace!r}",
                "Add " + ", ".join(f"{name} as a {type_name(type_)}" for name, type_ in missing.items()) + " there",
            ) from error
        raise namespace_error(error, f"add the search attribute {names}") from error


def _not_allowed(what: str, instead: str) -> ConfigError:
    return ConfigError(
        f"the server does not let us {what}: it wants an administrator, and on Temporal Cloud that is the web "
        f"interface or tcld. {instead}, then run semel migrate again."
    )


def namespace_error(error: RPCError, what: str) -> EngineError:
    """What went wrong between us and the server, in our words."""
    if error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
        return EngineUnavailable(
            f"the Temporal server stopped answering when asked to {what}: {phrase(error.message)}."
        )
    return EngineError(f"the Temporal server refuses to {what}: {error.message} ({error.status.name}).")


def _duration(span: timedelta) -> Duration:
    duration = Duration()
    duration.FromTimedelta(span)
    return duration


def longest(definitions: Iterable[Definition], settings: Settings, *, windows: bool = True) -> tuple[timedelta, str]:
    """The longest that something has to be kept after its end, and whose that is: "workflow 'order'".

    A result is promised for its retention and a key for its window, so the longer of both counts. Queues that are
    declared count too, since any task may be sent there. With nothing declared: as long as workflows by default.
    Not `windows`: keys are remembered elsewhere, so only retentions count.
    """
    needs = [(_kept(one, settings, windows), f"{one.kind} {one.name!r}") for one in definitions]
    for name, queue in settings.queues.items():
        given = [span for span in (queue.retention, queue.dedup_window if windows else None) if span is not None]
        needs += [(span, f"queue {name!r}") for span in given]
    return max(needs, key=lambda need: need[0], default=(WORKFLOW_RETENTION, "a workflow with no retention of its own"))


def _kept(one: Definition, settings: Settings, windows: bool) -> timedelta:
    queue = settings.queues.get(one.queue, QueueSettings())
    if isinstance(one, Entity):  # what it knew of message keys is in the workflow that has ended, and nowhere else
        return one.kept(queue.retention).window
    default = TASK_RETENTION if one.kind == "task" else WORKFLOW_RETENTION
    keep = keeping((one.retention, one.dedup_window), (queue.retention, queue.dedup_window), (default, None))
    return max(keep.retention, keep.window) if windows else keep.retention
