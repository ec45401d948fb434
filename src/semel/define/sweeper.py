"""A sweeper: a function that finds stuck business rows and yields what to start for each of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeVarTuple, overload

from semel.contract.durations import Duration, parse_duration
from semel.define.schedule import ScheduleOptions
from semel.define.task import Call
from semel.define.workflow import WorkflowCall
from semel.errors import DefinitionError, InvalidValue

Ts = TypeVarTuple("Ts")
TASK_PREFIX: Final = "semel.sweep."
"""How the name of the task begins that a sweeper runs as."""
EVERY: Final = "15m"
OLDER_THAN: Final = "5m"
LIMIT: Final = 1000
MOST: Final = 100_000
TIMEOUT: Final = "10m"
LOOKED_AT: Final = 10
"""A run looks at so many times more rows than it starts at most."""


class SweeperOptions(ScheduleOptions, total=False):
    """The options of a sweeper: its own, and those of the schedule that it runs by."""

    older_than: Duration
    """A row counts as stuck after this long. Without it: 5 minutes."""
    limit: int
    """At most so many executions are started in one run. Without it: 1000."""
    timeout: Duration
    """A run that takes longer is broken off and tried again. Without it: 10 minutes."""
    reuse: Literal["failed_only", "always"]
    """Which finished executions are started again: those that did not complete, or all."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweeper's function is told: `def stuck_tenants(sweep: semel.Sweep)`."""

    name: str
    """The name of the sweeper."""
    before: datetime
    """Rows that have been as they are since before this time, in UTC, are stuck."""
    limit: int
    """So many executions are started in this run at most: a LIMIT for the query."""
    dry_run: bool = False
    """Nothing will be started."""


class Stuck:
    """A stuck row: the stable key of its execution, the task or workflow to start, and its arguments.

    `yield semel.Stuck(f"tenant-{id}", provision, id)`; arguments by name with `provision.call(…)`. A name instead of a
    function starts a workflow of a Temporal cluster that other workers run, on their `task_queue`. With `since`, a row
    that has been stuck for less than `older_than` is ignored, whatever the query found.
    """

    __slots__ = ("args", "function", "key", "since", "task_queue")

    @overload
    def __init__(self, key: str, call: Call[Any] | WorkflowCall[Any], /, *, since: datetime | None = None) -> None: ...

    @overload
    def __init__(
        self,
        key: str,
        workflow: Callable[[Any, *Ts], Coroutine[Any, Any, Any]],
        /,
        *args: *Ts,
        since: datetime | None = None,
    ) -> None: ...

    @overload
    def __init__(self, key: str, task: Callable[[*Ts], Any], /, *args: *Ts, since: datetime | None = None) -> None: ...

    @overload
    def __init__(
        self, key: str, name: str, /, *args: object, task_queue: str, since: datetime | None = None
    ) -> None: ...

    def __init__(
        self,
        key: str,
        function: Any,
        /,
        *args: object,
        task_queue: str | None = None,
        since: datetime | None = None,
    ) -> None:
        self.key = key
        self.function = function
        self.args = args
        self.task_queue = task_queue
        self.since = since

    def __repr__(self) -> str:
        return f"<Stuck {self.key!r} {getattr(self.function, 'name', self.function)!r}>"


class Sweeper:
    """A sweeper as it was declared."""

    def __init__(self, name: str, function: Callable[..., Any], options: SweeperOptions) -> None:
        check_function(name, function)
        self.name = name
        self.function = function
        self.schedule: dict[str, Any] = {key: value for key, value in options.items() if key not in _OWN}
        if not {"cron", "every", "at"} & self.schedule.keys():
            self.schedule["every"] = EVERY
        self.older_than = parse_duration(options.get("older_than", OLDER_THAN), "older_than")
        self.timeout = parse_duration(options.get("timeout", TIMEOUT), "timeout")
        if not self.timeout:
            raise InvalidValue("timeout=0: give a positive duration.")
        self.limit = _check_limit(options.get("limit", LIMIT))
        self.reuse: str = options.get("reuse", "failed_only")
        if self.reuse not in ("failed_only", "always"):
            raise InvalidValue(f"reuse={self.reuse!r}: a sweeper has 'failed_only' or 'always'.")

    @property
    def task_name(self) -> str:
        """The name of the task that it runs as."""
        return TASK_PREFIX + self.name

    @property
    def retention(self) -> timedelta:
        """How long reports of runs are kept: the last ones are there until the next run, however seldom it runs."""
        every = self.schedule.get("every")
        if every is None:
            return timedelta(days=40)
        return max(timedelta(days=7), 3 * parse_duration(every, "every"))


_OWN: Final = frozenset({"older_than", "limit", "timeout", "reuse"})


def check_function(name: str, function: object) -> None:
    """DefinitionError: this cannot be the function of a sweeper."""
    if not inspect.isfunction(function):
        raise DefinitionError(
            f"sweeper {name!r}: {function!r} is not a plain function: put @app.sweeper(…) above a `def` or `async def` "
            "that takes a semel.Sweep, and not above @app.task."
        )
    parameters = list(inspect.signature(function).parameters.values())
    needed = [
        one for one in parameters if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if (
        not parameters
        or len(needed) > 1
        or parameters[0].kind
        not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
    ):
        raise DefinitionError(
            f"sweeper {name!r}: its function takes one argument, such as `def {function.__name__}(sweep: semel.Sweep)`."
        )


def _check_limit(limit: Any) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
        raise InvalidValue(f"limit={limit!r}: give a whole number from 1 to {MOST:,}.")
    return limit
