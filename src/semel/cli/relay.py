"""`semel relay`: relay the rows of outboxes until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Annotated

import typer

from semel import App, ConfigError, InvalidValue
from semel.cli.command import Config, Debug, Exit, Namespace, OptionalTarget, Url, guarded, load_app, require_database
from semel.cli.worker import (
    LOOPBACK,
    Level,
    LogFormat,
    MetricsHost,
    MetricsPort,
    begin,
    engine_name,
    serve_metrics,
    set_up_logging,
)
from semel.cli.worker_processes import LAST_RESORT, StopRequests, end_within

log = logging.getLogger("semel.relay")
Database = Annotated[
    list[str] | None,
    typer.Option(
        "--database",
        help="The database with the outbox. Can be repeated. Default: SEMEL_OUTBOX, then semel.toml.",
        show_default=False,
    ),
]


def relay(
    target: OptionalTarget = None,
    database: Database = None,
    batch: Annotated[int, typer.Option(min=1, help="How many rows are taken at once.")] = 500,
    concurrency: Annotated[int, typer.Option(min=1, help="How many rows are under way at once.")] = 100,
    poll: Annotated[
        str, typer.Option(help="How often to look for rows, behind the wake-up where there is one.")
    ] = "5s",
    lease: Annotated[str, typer.Option(help="For how long rows are taken.")] = "60s",
    retention: Annotated[str, typer.Option(help="How long processed rows are kept.")] = "7d",
    url: Url = None,
    namespace: Namespace = None,
    config: Config = "semel.toml",
    log_level: Annotated[Level | None, typer.Option(help="What is logged to stderr.", show_default=False)] = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="Text, or JSON lines.", show_default=False)] = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    debug: Debug = False,
) -> None:
    """Relay the rows of an outbox: semel relay shop:app --database postgresql://shop@db/shop

    It takes rows that were committed, and starts what they ask for on the app's engine. Any number may run. Handlers
    and starts from plain SQL need MODULE:APP; for all other rows --url will do.
    """

    def work() -> Exit:
        stopping = StopRequests(on_more=lambda _: end_within(LAST_RESORT, Exit.FAILED))
        stopping.listen()
        app = _app(target, url, namespace, config)
        set_up_logging(log_level, log_format)
        databases = database or ([] if app.settings.outbox is None else [app.settings.outbox])
        if not databases:
            raise ConfigError("which database is the outbox in? Give --database, or set outbox or SEMEL_OUTBOX.")

        async def serve() -> None:
            options = {"poll": poll, "lease": lease, "retention": retention}
            async with app, contextlib.AsyncExitStack() as stack:
                if metrics_port is not None:
                    await stack.enter_async_context(serve_metrics(app, metrics_port, metrics_host))
                relaying = app.relay(*databases, batch=batch, concurrency=concurrency, **options)
                relays = await begin(lambda: stack.enter_async_context(relaying), stopping)
                if relays is not None:
                    names = ", ".join(one.database for one in relays)
                    log.info("ready: relaying %s to %s", names, engine_name(app.settings.url))
                    await stopping.asked(1)
            log.info("stopped")
            end_within(LAST_RESORT, Exit.OK)

        asyncio.run(serve())
        return Exit.OK

    guarded(work, debug)


def _app(target: str | None, url: str | None, namespace: str | None, config: str) -> App:
    if target is None:
        app = App(url, namespace=namespace, config=config)
        require_database(app.settings.url)  # rows that are started in a new file would be lost to the engine they mean
        return app
    if url is not None or namespace is not None:
        raise InvalidValue(f"give {target} or --url and --namespace, not both.")
    return load_app(target)
