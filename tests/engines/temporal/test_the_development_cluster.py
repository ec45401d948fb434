"""deploy/docker-compose.dev.yml: a cluster on this machine alone, with knobs that the server knows."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from datetime import timedelta
from pathlib import Path

import pytest

import semel
from bench.server import Postgres
from semel.testing.temporal_server import QUICK, free_port, program, temporal_server
from tests.tidy.house import ROOT
from tests.world import eventually

COMPOSE = ROOT / "deploy" / "docker-compose.dev.yml"
KNOBS = ROOT / "deploy" / "dynamicconfig" / "development.yaml"


def services() -> dict[str, str]:
    """The text of each service by its name."""
    body = COMPOSE.read_text(encoding="utf-8").partition("\nservices:\n")[2].partition("\nvolumes:")[0]
    parts = re.split(r"(?m)^  ([a-z-]+):\n", body)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def knobs() -> list[str]:
    return re.findall(r"(?m)^([\w.]+):$", KNOBS.read_text(encoding="utf-8"))


def test_there_is_all_that_is_needed() -> None:
    assert set(services()) == {"postgresql", "temporal-schema", "temporal", "semel-setup", "temporal-ui"}


def test_it_listens_on_this_machine_only() -> None:
    ports = re.findall(r'(?m)^      - "(.+:\d+)"$', "".join(services().values()))
    assert len(ports) == 3
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_every_image_has_a_version() -> None:
    for name, text in services().items():
        built = "build:" in text
        assert built or re.search(r'image: "[\w/-]+:\$\{\w+:-[\d.]+\}"', text), name
    (dockerfile,) = re.findall(r"dockerfile: (\S+)", COMPOSE.read_text(encoding="utf-8"))
    assert re.search(r"(?m)^ARG PYTHON_VERSION=3\.\d+$", (ROOT / dockerfile).read_text(encoding="utf-8"))
    copied = re.findall(r"(?m)^COPY (.+) \S+$", (ROOT / dockerfile).read_text(encoding="utf-8"))
    assert [one for line in copied for one in line.split() if not (ROOT / one).exists()] == []


def test_what_serves_says_when_it_is_healthy_and_what_ends_is_not_started_again() -> None:
    for name, text in services().items():
        ends = name in ("temporal-schema", "semel-setup")
        assert ("healthcheck:" in text) is not ends, name
        assert ('restart: "no"' if ends else "restart: unless-stopped") in text, name


def test_each_service_waits_for_those_that_it_needs() -> None:
    needs = {
        name: re.findall(r"(?m)^      ([a-z-]+):\n        condition: (\w+)$", text) for name, text in services().items()
    }
    assert needs == {
        "postgresql": [],
        "temporal-schema": [("postgresql", "service_healthy")],
        "temporal": [("temporal-schema", "service_completed_successfully")],
        "semel-setup": [("temporal", "service_healthy"), ("postgresql", "service_healthy")],
        "temporal-ui": [("temporal", "service_healthy")],
    }


@pytest.mark.slow
def test_the_versions_are_those_that_are_tested() -> None:
    """The knobs below are looked up in the program, so it must be the version that the file starts."""
    told = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    server, interface = re.findall(r"(?:Server|UI) ([\d.]+)", told)
    text = COMPOSE.read_text(encoding="utf-8")
    assert set(re.findall(r"TEMPORAL_VERSION:-([\d.]+)", text)) == {server}
    assert set(re.findall(r"TEMPORAL_UI_VERSION:-([\d.]+)", text)) == {interface}


def test_the_knobs_are_where_the_server_looks() -> None:
    temporal = services()["temporal"]
    assert f"./{KNOBS.parent.name}:/etc/temporal/config/dynamicconfig" in temporal
    assert f"DYNAMIC_CONFIG_FILE_PATH: config/dynamicconfig/{KNOBS.name}" in temporal
    assert set(QUICK) <= set(knobs())


@pytest.mark.slow
def test_the_server_knows_every_knob() -> None:
    """It says nothing of keys that it does not know, so they are looked up in the program itself."""
    with Path(program()).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as binary:
        assert [knob for knob in [*knobs(), *QUICK] if binary.find(knob.encode()) < 0] == []


def setting(service: str, name: str) -> str:
    (value,) = re.findall(rf"(?m)^      {name}: (\S+)", services()[service])
    return str(value)


def script_of(service: str) -> str:
    """The shell script that is the command of a service, as the shell in the container gets it."""
    body = services()[service].partition("command:\n      - |\n")[2]
    lines = [line[8:] for line in body.splitlines() if line.startswith(" " * 8)]
    return "\n".join(lines).replace("$$", "$")


@pytest.mark.slow
async def test_the_same_commands_with_the_same_configuration_make_a_cluster_that_works(
    tmp_path: Path, postgres_server: Postgres
) -> None:
    """Without containers: the server, its interface and PostgreSQL come from wheels, what is run is from the file."""
    postgres_server.sql("create role semel login superuser password 'semel'")
    postgres_server.sql("create database semel owner semel")
    values = dict(re.findall(r"(?m)^([\w.]+):\n  - value: (.+)$", KNOBS.read_text(encoding="utf-8")))
    config = {name: value if value in ("true", "1", "2000") else f'"{value}"' for name, value in values.items()}
    assert set(config) == set(knobs())
    interface = free_port()
    with temporal_server(tmp_path, ui_port=interface, config=config) as server:
        records = setting("semel-setup", "SEMEL_RECORDS").replace(
            "postgresql:5432", f"127.0.0.1:{postgres_server.port}"
        )
        url = setting("semel-setup", "SEMEL_URL").replace("temporal:7233", server.address)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        env = {**os.environ, "PATH": path, "SEMEL_URL": url, "SEMEL_RECORDS": records}
        for _ in range(2):  # again, as with each `up`
            made = await asyncio.to_thread(
                subprocess.run, ["/bin/sh", "-uc", script_of("semel-setup")],
                env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert made.returncode == 0, made.stdout + made.stderr
        (health,) = re.findall(r"http://127.0.0.1:8080(/\w+)", services()["temporal-ui"])

        def healthy() -> bool:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{interface}{health}") as page:
                return bool(page.status == 200)
            return False

        await eventually(lambda: asyncio.to_thread(healthy))
        app = semel.App(url, records=records, config=None)

        @app.task
        async def charge(cents: int) -> int:
            return cents

        async with app:
            async with app.worker():
                handle = await app.enqueue(charge, 100, task_id="o-1")
                assert await handle.result(timeout="60s") == 100
                await app.schedules.put("nightly", charge.call(1), every=timedelta(days=1))
            assert [one.what for one in await app.doctor() if not one.ok] == []


def test_the_scripts_are_what_a_shell_understands() -> None:
    for service in ("temporal-schema", "semel-setup"):
        done = subprocess.run(["/bin/sh", "-n"], input=script_of(service), text=True, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), service


@pytest.mark.slow
def test_compose_accepts_it() -> None:
    """Where there is a docker compose, of whichever age. It needs no engine for this."""
    tool = next((words for words in (["docker", "compose"], ["docker-compose"]) if works(words)), None)
    if tool is None:
        pytest.skip("no docker compose on this machine")
    done = subprocess.run([*tool, "-f", str(COMPOSE), "config", "-q"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def works(words: list[str]) -> bool:
    """Is it installed? There is a docker without its compose, too."""
    if shutil.which(words[0]) is None:
        return False
    return subprocess.run([*words, "version"], capture_output=True, check=False).returncode == 0
