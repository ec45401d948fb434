"""deploy/docker-compose.dev.yml: a cluster on this machine alone, with knobs that the server knows."""

from __future__ import annotations

import mmap
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from semel.testing.temporal_server import QUICK, program
from tests.tidy.house import ROOT

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
    assert set(services()) == {"postgresql", "temporal-schema", "temporal", "temporal-ui"}


def test_it_listens_on_this_machine_only() -> None:
    ports = re.findall(r'(?m)^      - "(.+:\d+)"$', "".join(services().values()))
    assert len(ports) == 3
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_every_image_has_a_version() -> None:
    for name, text in services().items():
        assert re.search(r'image: "[\w/-]+:\$\{\w+:-[\d.]+\}"', text), name


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
