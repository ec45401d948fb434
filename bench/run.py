"""Runs the plan: each step in a process of its own, on a database of its own, for a bounded time."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.figures import Figures
from bench.peers.environment import python_of
from bench.plan import Contender, Part, Size
from bench.server import Missing, Postgres, postgres, redis
from semel.testing.temporal_server import TemporalServer, temporal_server

ROOT = Path(__file__).parent.parent
Say = Callable[[str], None]
PATH = re.compile(r"(?:/[\w.-]+)+/")  # a reason ends up in a page: where this machine keeps its files does not


class Run:
    """One run: its servers, its sizes, its figures."""

    def __init__(self, size: Size, scratch: Path, say: Say) -> None:
        self.size = size
        self.load = os.getloadavg()[0]
        self.figures = Figures()
        self.postgres: Postgres | None = None
        self._redis: str | None = None
        self._temporal: TemporalServer | None = None
        self._scratch = scratch
        self._say = say
        self._servers = ExitStack()
        self._no_server: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def __enter__(self) -> "Run":
        self._scratch.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    def start_servers(self, wanted: set[str]) -> None:
        """Start what the plan needs. What cannot be had is said beside each figure that is missing for it."""
        if "postgresql" in wanted:
            try:
                self.postgres = self._servers.enter_context(postgres(self._scratch))
                self.postgres.warm_up()
            except Missing as why:
                self._no_server["postgresql"] = str(why)
        if "redis" in wanted:
            try:
                self._redis = self._servers.enter_context(redis(self._scratch))
            except Missing as why:
                self._no_server["redis"] = str(why)

        if "temporal" in wanted:
            folder = self._scratch / "temporal"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            self._temporal = self._servers.enter_context(temporal_server(folder))

    def step(self, number: int, part: Part, contender: Contender) -> None:
        """Measure one part of one contender; a failure is recorded, and the run goes on."""
        self._say(f"round {number + 1}  {part.name:<10}  {contender.name}")
        try:
            python = python_of(contender.peer, self._scratch) if contender.peer else Path(sys.executable)
            lines, why = self._run(self._command(python, part, contender))
        except (Missing, RuntimeError) as error:
            lines, why = [], str(error)
        for row in (json.loads(line) for line in lines if line.startswith("{")):
            self.figures.add(contender, row)
            self._say(f"    {row['work']:<24} {row['value']:>12,.2f} {row['unit']}")
        if why:
            self.figures.miss(contender, part, why)
            self._say(f"    not measured: {why}")

    def _command(self, python: Path, part: Part, contender: Contender) -> list[str]:
        command = [str(python), "-m", contender.module, part.name, "--url", self._url(contender)]
        command += ["--tasks", str(self.size.tasks(part, contender)), "--samples", str(self.size.samples)]
        command += ["--rows", str(self.size.history), "--seconds", str(self.size.seconds(part))]
        return [*command, "--scratch", str(self._scratch.resolve())]

    def _url(self, contender: Contender) -> str:
        """A place without yesterday's data."""
        if contender.store == "its own":
            return contender.store
        if contender.store in self._no_server:
            raise Missing(self._no_server[contender.store])
        if contender.store == "redis":
            return str(self._redis)
        if contender.store == "sqlite":
            folder = self._scratch.resolve() / "sqlite"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            return f"sqlite:///{folder / 'bench.db'}"
        if contender.store == "temporal":
            assert self._temporal is not None
            return self._temporal.url(f"bench-{next(self._numbers)}")
        assert self.postgres is not None
        return self.postgres.fresh_database(contender.name.split(",")[0].lower())

    def _run(self, command: list[str]) -> tuple[list[str], str | None]:
        """What the contender printed, and why it printed no more."""
        # In a session of its own, so that what a contender started ends with it when time is up.
        pipe = subprocess.PIPE
        child = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        why = None
        try:
            out, errors = child.communicate(timeout=self.size.patience)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, errors = child.communicate()
            why = f"not done after {self.size.patience:g} s"
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            raise
        if child.returncode:
            with (self._scratch / "errors.log").open("a") as log:
                log.write(f"{' '.join(command)}\n{errors}\n")
            last = errors.strip().splitlines()[-1:] or ["it ended without a word"]
            why = why or f"{PATH.sub('', last[0])} (errors.log in the scratch folder has more)"
        return out.splitlines(), why
