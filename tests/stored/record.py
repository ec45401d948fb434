"""Records what the tree of today stores, as fixtures: python -m tests.stored.record

Makes a folder named after the newest migration (`0007`), or with a letter more if that is there (`0007b`): what is kept
is never overwritten, since it stands for the databases and clusters of people who update.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import platform
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from temporalio.client import Client

import semel
from bench.server import Postgres, postgres
from semel.testing.temporal_server import TemporalServer, temporal_server
from tests.stored.story import LEDGER, told

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NAMESPACE = "stored"
LETTERS = ["", *"bcdefghijklmnopqrstuvwxyz"]
OF_THIS_MACHINE = {
    str(ROOT): "/srv/shop",
    sys.base_prefix: "/usr",
    f"{os.getpid()}@{socket.gethostname()}": "1@recorder",
    f"{socket.gethostname()}:{os.getpid()}": "recorder:1",
    socket.gethostname(): "recorder",
}


def anonymous(data: bytes) -> bytes:
    """Without where files are on this machine, and what it is called."""
    for word, instead in OF_THIS_MACHINE.items():
        data = data.replace(word.encode(), instead.encode())
    return data


def program(module: ModuleType, app: semel.App) -> semel.App:
    """An app with the functions of a module."""
    app.tasks = module.app.tasks
    return app


async def record_sqlite(folder: Path, scratch: Path) -> float:
    """Write the database file, and the histories that it holds as exports."""
    file, copy = scratch / "semel.db", scratch / "copy.db"
    url = f"sqlite:///{file}"

    async def prepare() -> None:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(LEDGER)
            connection.commit()

    async with told(lambda module: program(module, semel.App(url, config=None)), prepare) as app:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        at = time.time()
        exports = await exported(app)
    with closing(sqlite3.connect(copy)) as connection:
        clean_sqlite(connection)
    (folder / "sqlite.db.gz").write_bytes(gzip.compress(copy.read_bytes(), mtime=0))
    pack(folder / "exports.json.gz", exports)
    return at


def clean_sqlite(connection: sqlite3.Connection) -> None:
    """Rewrite what names this machine, and make the file small."""
    tables = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
    for table in tables:
        columns = [row[1] for row in connection.execute(f"pragma table_info({table})")]
        for column in columns:
            for (value,) in connection.execute(f"select distinct {column} from {table}").fetchall():
                data = value.encode() if isinstance(value, str) else value
                if isinstance(data, bytes) and (clean := anonymous(data)) != data:
                    new = clean.decode() if isinstance(value, str) else clean
                    connection.execute(f"update {table} set {column} = ? where {column} = ?", (new, value))
    connection.commit()
    connection.execute("pragma journal_mode = delete")
    connection.execute("vacuum")


async def record_postgres(folder: Path, server: Postgres) -> float:
    """Write a plain SQL dump, and its histories as exports."""
    server.sql(f"create database {NAMESPACE}")
    url = server.url(NAMESPACE)

    async def prepare() -> None:
        await asyncio.to_thread(server.sql, LEDGER, NAMESPACE)

    def open_app(module: ModuleType) -> semel.App:
        return program(module, semel.App(url, config=None, auto_migrate=True))

    async with told(open_app, prepare):
        command = [str(server.bin / "pg_dump"), "--no-owner", "--no-privileges", url]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
        at = time.time()
    dump = anonymous(done.stdout)
    for word, instead in OF_THIS_MACHINE.items():  # bytes stand there in hexadecimal
        dump = dump.replace(word.encode().hex().encode(), instead.encode().hex().encode())
    (folder / "postgres.sql.gz").write_bytes(gzip.compress(dump, mtime=0))
    return at


async def record_temporal(folder: Path, server: TemporalServer, scratch: Path, namespace: str = NAMESPACE) -> float:
    """Write the histories as the cluster has them and as exports, and the records database beside it."""
    file, copy = scratch / "records.db", scratch / "records-copy.db"

    async def prepare() -> None:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(LEDGER)
            connection.commit()

    def open_app(module: ModuleType) -> semel.App:
        url, records = server.url(namespace), f"sqlite:///{file}"
        return program(module, semel.App(url, config=None, auto_migrate=True, records=records))

    async with told(open_app, prepare) as app:
        await asyncio.sleep(1)  # the cluster's list of workflows lags behind
        client = await Client.connect(server.address, namespace=namespace)
        histories = {}
        async for run in client.list_workflows():
            handle = client.get_workflow_handle(run.id, run_id=run.run_id)
            history = json.loads((await handle.fetch_history()).to_json())
            kept = {"workflow_id": run.id, "run_id": run.run_id, "history": scrubbed(history)}
            histories[f"{run.workflow_type} {run.id} {run.run_id}"] = json.dumps(kept)
        exports = await exported(app)
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        at = time.time()
    with closing(sqlite3.connect(copy)) as connection:
        clean_sqlite(connection)
    (folder / "records.db.gz").write_bytes(gzip.compress(copy.read_bytes(), mtime=0))
    pack(folder / "temporal-exports.json.gz", exports)
    pack(folder / "temporal.json.gz", histories)
    return at


def scrubbed(value: Any) -> Any:
    """A history without what names this machine, also inside of its payloads."""
    match value:
        case dict():
            return {key: scrubbed_data(one) if key == "data" else scrubbed(one) for key, one in value.items()}
        case list():
            return [scrubbed(one) for one in value]
        case str():
            return anonymous(value.encode()).decode()
        case _:
            return value


def scrubbed_data(encoded: Any) -> Any:
    """Payloads are in base64."""
    if not isinstance(encoded, str):
        return scrubbed(encoded)
    return base64.b64encode(anonymous(base64.b64decode(encoded))).decode()


async def exported(app: semel.App) -> dict[str, str]:
    """What `semel workflows export` gives, for every workflow and entity that has begun."""
    texts = {}
    for kind in ("workflow", "entity"):
        for execution in await app.list(kind=kind, limit=1000):
            handle = await app.get(execution.id)
            with suppress(semel.NotFound):  # on a cluster the journal of a message that is under way is Temporal's own
                text = await handle.export()
                texts[f"{execution.key} {execution.id}"] = anonymous(text.encode()).decode()
    return texts


def pack(path: Path, texts: dict[str, str]) -> None:
    """Many histories in one small file, each under its name."""
    named = {name: json.loads(texts[name]) for name in sorted(texts)}
    path.write_bytes(gzip.compress(json.dumps(named).encode(), mtime=0))


def new_folder(schema: int, kept: Iterable[str]) -> Path:
    """The first name that is free."""
    taken = set(kept)
    return HERE / next(name for letter in LETTERS if (name := f"{schema:04}{letter}") not in taken)


def newest_migration() -> int:
    """As the SQLite dialect has it; both have the same numbers."""
    folder = Path(semel.__file__).parent / "engines" / "sqlite" / "migrations"
    return max(int(path.name[:4]) for path in folder.glob("*.sql"))


def record() -> None:
    """Record all three engines into a new folder."""
    folder = new_folder(newest_migration(), [path.name for path in HERE.iterdir()])
    folder.mkdir()
    with tempfile.TemporaryDirectory(prefix="semel-stored-") as name:
        scratch = Path(name)
        scratch.chmod(0o755)  # run as root, PostgreSQL becomes another user, who must be able to walk in
        recorded_at = {"sqlite": asyncio.run(record_sqlite(folder, scratch))}
        with postgres(scratch, throwaway=True) as server:
            recorded_at["postgres"] = asyncio.run(record_postgres(folder, server))
        with temporal_server(scratch) as cluster:
            recorded_at["temporal"] = asyncio.run(record_temporal(folder, cluster, scratch))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    about = {
        "semel": version("semel"),
        "commit": commit.strip(),
        "schema": newest_migration(),
        "python": platform.python_version(),
        "temporalio": version("temporalio"),
        "recorded_at": recorded_at,
    }
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    print(f"{folder.name}: {sum(path.stat().st_size for path in folder.iterdir()):,} bytes")


if __name__ == "__main__":
    record()
