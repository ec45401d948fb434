"""An entity: a class with state and handlers, of which there is one for each id, for as long as it matters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from semel.contract.durations import Duration
from semel.contract.keys import KEY_LENGTH, check_name
from semel.contract.retention import WORKFLOW_RETENTION, Retention, keeping
from semel.contract.window import DEFAULT_KEYS, DEFAULT_WINDOW, DedupWindow, check_max_keys, check_window
from semel.define.handler import Handler, Idle, Query, Role, read_handler, read_idle, read_query, role_of
from semel.define.state import State
from semel.errors import DefinitionError
from semel.settings import optional_duration

if TYPE_CHECKING:
    from semel.define.registry import Registry

S = TypeVar("S")


class Entity(Generic[S]):
    """A decorated class, and how its entities want to be run. Everything that cannot work is refused here.

    The class stays a class: make one in a test, and call its methods.
    """

    kind: ClassVar[str] = "entity"
    version: ClassVar[int] = 1
    timeout: ClassVar[timedelta | None] = None

    def __init__(
        self,
        cls: type[S],
        *,
        name: str | None = None,
        window: Duration = DEFAULT_WINDOW,
        max_keys: int = DEFAULT_KEYS,
        queue: str = "default",
        retention: Duration | None = None,
    ) -> None:
        self.name = check_name(name or getattr(cls, "__name__", None), "entity name", KEY_LENGTH)
        who = f"entity {self.name!r}"
        self.window: timedelta = check_window(window)
        self.max_keys = check_max_keys(max_keys)
        self.queue = check_name(queue, "queue")
        self.retention = optional_duration(retention, "retention")
        self._state: State[S] = State(cls, who)
        self.cls = cls
        self.handlers: dict[str, Handler] = {}
        self.queries: dict[str, Query] = {}
        self.idle: Idle | None = None
        self.registry: Registry | None = None
        """Of the app that it belongs to."""
        for fn, role in _roles(cls, who):
            self._add(fn, role, who)
        if not self.handlers:
            raise DefinitionError(
                f"{who} has no handler, so nothing could ever reach it: put @semel.handler on an "
                "`async def` method that takes (self, ctx, …)."
            )

    def __repr__(self) -> str:
        return f"<entity {self.name!r} on queue {self.queue!r}: {', '.join(self.handlers)}>"

    def fresh(self) -> S:
        """The state of an entity to which nothing has happened yet."""
        return self._state.fresh()

    def fresh_window(self) -> DedupWindow:
        """The message keys of an entity to which nothing has happened yet."""
        return DedupWindow(self.window, self.max_keys)

    def kept(self, of_queue: timedelta | None) -> Retention:
        """For how long it is kept after its end, and at least for its window what it knew of message keys."""
        keep = keeping((self.retention, None), (of_queue, None), (WORKFLOW_RETENTION, None)).retention
        return Retention(keep, max(keep, self.window))

    def encode_state(self, state: S, limit: int) -> bytes:
        """Canonical JSON of the declared attributes. Raises NotEncodable, or PayloadTooLarge over `limit` bytes."""
        return self._state.encode(state, limit)

    def decode_state(self, data: bytes) -> S:
        """The stored state, with defaults for what was added since. Raises NotDecodable if anything would be lost."""
        return self._state.decode(data)

    def _add(self, fn: Any, role: Role, who: str) -> None:
        if role.kind == "idle":
            if self.idle is not None:
                raise DefinitionError(
                    f"{who} has two idle methods, {self.idle.fn.__name__!r} and {fn.__name__!r}: keep one."
                )
            self.idle = read_idle(fn, role, who)
            return
        taken = self.handlers.get(role.name) or self.queries.get(role.name)
        if taken is not None:
            raise DefinitionError(
                f"{who}: {taken.fn.__name__!r} and {fn.__name__!r} are both called {role.name!r}. "
                f"Give one another name: @semel.{role.kind}('…')."
            )
        if role.kind == "query":
            self.queries[role.name] = read_query(fn, role, who)
        else:
            self.handlers[role.name] = read_handler(fn, role, who)


def _roles(cls: type, who: str) -> Iterator[tuple[Any, Role]]:
    """Each decorated method, as the class has it after inheritance, in the order in which they were written."""
    names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
    for name in names:
        member = inspect.getattr_static(cls, name)
        role = role_of(member)
        if role is None:
            inherited = next((r for base in cls.__mro__ if (r := role_of(vars(base).get(name)))), None)
            if inherited is not None:
                raise DefinitionError(
                    f"{who}: {name!r} replaces an inherited {inherited.kind} and is none itself: "
                    f"put @semel.{inherited.kind} on it."
                )
        elif not inspect.isfunction(member):
            raise DefinitionError(f"{who}: {name!r} is a {type(member).__name__}: a {role.kind} is a plain method.")
        else:
            yield member, role
