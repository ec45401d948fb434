"""`semel worker`: run tasks until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer

from semel import App, ConfigError, EngineUnavailable, Running, configure_logging
from semel.cli.command import Debug, Exit, Target, guarded, load_app
from semel.cli.worker_processes import LAST_RESORT, StopRequests, WorkerProcesses, end_now, end_within

T = TypeVar("T")

log = logging.getLogger("semel.worker")
COLLECT_AFTER = (20_000, 20, 20)
SWITCH_EVERY = 0.0005
"""Seconds after which a busy thread lets another one go on. Python's own, ten times as long, keeps a thread that writes
to the database waiting each time that it has an answer."""
START_PATIENCE = 300.0
"""Seconds for which a worker tries to start while the database cannot be reached or refuses connections."""
REMIND_AFTER = 30.0
LONGEST_PAUSE = 5.0
START_WITHIN = 2.0
"""Seconds that a worker which is asked to stop while it starts has to finish that, so that it can leave in order."""
LOOPBACK = "127.0.0.1"
NAMED = 5
"""How many of the running tasks are named while waiting for them."""


class Level(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How lines are written."""

    TEXT = "text"
    JSON = "json"


MetricsPort = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=65535,
        help="Serve metrics for Prometheus here; of several processes each on the next port.",
        show_default=False,
    ),
]
MetricsHost = Annotated[str, typer.Option(help="The address on which metrics are served.")]


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options given on the command line; None leaves the setting to semel.toml."""

    target: str
    queues: list[str] | None
    concurrency: int | None
    lease: str | None
    grace: str | None
    schedules: bool | None
    relay: list[str] | None
    log_level: Level | None
    log_format: LogFormat | None
    metrics_port: int | None = None
    metrics_host: str = LOOPBACK


def worker(
    target: Target,
    queues: Annotated[
        str | None, typer.Option(help="The queues to serve, separated by commas. Default: all.", show_default=False)
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="How many tasks each process runs at a time.")] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="How many processes to run: one for each core that tasks keep busy.")
    ] = 1,
    lease: Annotated[
        str | None, typer.Option(help="A worker without a heartbeat for this long is considered dead, such as 30s.")
    ] = None,
    grace: Annotated[str | None, typer.Option(help="How long running tasks may take after the first SIGTERM.")] = None,
    no_schedules: Annotated[
        bool, typer.Option("--no-schedules", help="Leave it to other workers to start the runs of schedules.")
    ] = False,
    relay: Annotated[
        list[str] | None,
        typer.Option(help="Also relay the outbox in this database. Can be repeated.", show_default=False),
    ] = None,
    log_level: Annotated[
        Level | None,
        typer.Option(help="What is logged to stderr, including your own logs. Default: info.", show_default=False),
    ] = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(help="Text, or one JSON object per line. Default: text.", show_default=False),
    ] = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    tied: Annotated[bool, typer.Option("--tied", help="Stop when stdin ends.", hidden=True)] = False,
    debug: Debug = False,
) -> None:
    """Run tasks and workflows: semel worker shop:app --queues payments,default --concurrency 200 --processes 2

    After the first SIGTERM or Ctrl-C it takes no new work, and running tasks may finish within --grace. The second
    stops at once, and other workers run what was not finished. Exits with 0 after a clean stop.
    """

    def work() -> Exit:
        starts = False if no_schedules else None
        logs, metrics = (log_level, log_format), (metrics_port, metrics_host)
        given = WorkerOptions(target, _split(queues), concurrency, lease, grace, starts, relay, *logs, *metrics)
        if processes > 1:
            set_up_logging(given.log_level, given.log_format)
            return WorkerProcesses(processes, _as_arguments(given, debug), metrics_port).run()
        stopping = StopRequests(on_more=lambda _: end_within(LAST_RESORT, Exit.FAILED))
        stopping.listen()
        if tied:
            stopping.end_with(sys.stdin.fileno())
        app = load_app(target)
        set_up_logging(given.log_level, given.log_format)
        _refuse_what_cannot_work(app, target)
        _collect_seldom()
        sys.setswitchinterval(SWITCH_EVERY)
        asyncio.run(_serve(app, given, stopping))
        _leave_stuck_threads()
        return Exit.OK

    guarded(work, debug)


def _collect_seldom() -> None:
    """A worker makes many small objects that live as long as a task: looking through all of them over and over takes
    a fifth of its time. What was imported stays as it is, and the rest is looked at less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


def _as_arguments(given: WorkerOptions, debug: bool) -> list[str]:
    """The options as command-line arguments for a worker process."""
    options = {
        "--queues": None if given.queues is None else ",".join(given.queues),
        "--concurrency": given.concurrency,
        "--lease": given.lease,
        "--grace": given.grace,
        "--log-level": given.log_level,
        "--log-format": given.log_format,
        "--metrics-host": None if given.metrics_host == LOOPBACK else given.metrics_host,
    }
    arguments = [f"{name}={value}" for name, value in options.items() if value is not None]
    flags = ["--no-schedules"] * (given.schedules is False) + ["--debug"] * debug
    return [given.target, *arguments, *(f"--relay={url}" for url in given.relay or ()), *flags]


def _split(queues: str | None) -> list[str] | None:
    return None if queues is None else [queue.strip() for queue in queues.split(",") if queue.strip()]


def set_up_logging(level: Level | None, format: LogFormat | None) -> None:
    """What the app has set up itself stays, unless something else is asked for on the command line."""
    configure_logging(None if level is None else level.value, None if format is None else format.value)
    if level is not Level.DEBUG:  # Temporal's SDK tells of times that do not hold
        logging.getLogger("temporalio.worker").setLevel(logging.WARNING)


def _refuse_what_cannot_work(app: App, target: str) -> None:
    if not len(app.tasks):
        raise ConfigError(
            f"{target} has no tasks or workflows: decorate a function with @app.task, or import the modules that do."
        )
    if app.settings.url == "sqlite:///:memory:":
        raise ConfigError(f"{target} uses sqlite:///:memory:, which no other process can reach: use a file.")


async def _serve(app: App, given: WorkerOptions, stopping: StopRequests) -> None:
    options: dict[str, Any] = {
        "concurrency": given.concurrency,
        "lease": given.lease,
        "grace": given.grace,
        "schedules": given.schedules,
    }
    async with app, contextlib.AsyncExitStack() as stack:
        if given.metrics_port is not None:
            await stack.enter_async_context(serve_metrics(app, given.metrics_port, given.metrics_host))
        running = await begin(lambda: stack.enter_async_context(app.worker(queues=given.queues, **options)), stopping)
        if running is not None:
            queues = "all queues" if given.queues is None else f"queues {', '.join(given.queues)}"
            if given.relay:
                relays = await stack.enter_async_context(app.relay(*given.relay))
                log.info("relaying %s", ", ".join(one.database for one in relays))
            log.info(
                "ready: %s on %s, %s; %s", given.target, engine_name(app.settings.url), queues, _list_functions(app)
            )
            await stopping.asked(1)
            if running.busy:
                log.info("stopping: waiting for %s; signal again to stop at once", _name_tasks(running.busy))
            leaving = [asyncio.create_task(relay.stop()) for relay in app.relays]  # while the tasks finish
            drain = asyncio.create_task(running.stop())
            hurry = asyncio.create_task(stopping.asked(2))
            await asyncio.wait([drain, hurry], return_when=asyncio.FIRST_COMPLETED)
            left = running.busy
            if left and not drain.done():
                log.warning("stopping at once; given back: %s", _name_tasks(left))
                await running.stop(timedelta(0))
            hurry.cancel()
            await asyncio.gather(drain, *leaving)
    log.info("stopped")
    end_within(LAST_RESORT, Exit.OK)  # a task that swallows its cancellation would keep the loop from closing


def serve_metrics(app: App, port: int, host: str) -> contextlib.AbstractAsyncContextManager[int]:
    """Metrics for Prometheus while the block runs. Before the app is used."""
    from semel.metrics import Metrics  # an extra

    metrics = Metrics()
    app.add_observer(metrics)
    log.info("metrics on http://%s:%d/metrics", host, port)
    return metrics.serve(app, port, host)


async def begin(
    start: Callable[[], Coroutine[Any, Any, T]], stopping: StopRequests, patience: float = START_PATIENCE
) -> T | None:
    """Start a worker or a relay, and wait for a database that is away, or has no free connection, as it would do later.

    None: it was asked to stop before it had started. EngineUnavailable: the database was away for too long.
    """
    asked = asyncio.create_task(stopping.asked(1))
    give_up, remind, pause = time.monotonic() + patience, 0.0, 0.2
    try:
        while True:
            starting = asyncio.create_task(start())
            await asyncio.wait([starting, asked], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                await asyncio.wait([starting], timeout=START_WITHIN)
            if not starting.done():
                end_within(LAST_RESORT, Exit.OK)
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
                break
            try:
                return starting.result()
            except EngineUnavailable as error:
                if not asked.done() and time.monotonic() > give_up:
                    raise
                if not asked.done() and time.monotonic() > remind:
                    remind = time.monotonic() + REMIND_AFTER
                    log.warning("cannot start yet, trying again for %.0f s: %s", patience, error.message)
            await asyncio.wait([asked], timeout=pause)
            pause = min(LONGEST_PAUSE, pause * 2)
            if asked.done():
                break
    finally:
        asked.cancel()
    log.warning("asked to stop before it had started, while the database did not answer: exiting")
    return None


def _list_functions(app: App) -> str:
    """The functions of the app, such as `tasks: charge, ship; workflows: order`."""
    kinds = {"task": "tasks", "workflow": "workflows", "entity": "entities"}
    named = {words: sorted(one.name for one in app.tasks if one.kind == kind) for kind, words in kinds.items()}
    return "; ".join(f"{words}: {', '.join(names)}" for words, names in named.items() if names)


def _name_tasks(busy: Sequence[Running]) -> str:
    named = ", ".join(f"{r.name} {r.key or r.id} (attempt {r.attempt})" for r in busy[:NAMED])
    return named if len(busy) <= NAMED else f"{named} and {len(busy) - NAMED} more"


def engine_name(url: str) -> str:
    """The database without user, password and parameters. It may have several hosts, each with its port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _leave_stuck_threads() -> None:
    """A sync task cannot be interrupted: its thread must not outlive the claim, which others may have by now."""
    for thread in threading.enumerate():
        if thread.name.startswith("semel-task"):
            thread.join(0.2)
            if thread.is_alive():
                log.warning("a sync task does not return; exiting without waiting for it")
                end_now(Exit.OK)
