"""One virtual environment per peer, made on demand from its pinned requirements.

A peer that is a server from npm has a second file of pins, and the server is put into the same folder.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from bench.server import Missing

HERE = Path(__file__).parent
INSTALL_WITHIN = 300.0


def python_of(peer: str, scratch: Path) -> Path:
    """The interpreter of the peer's environment, which is made anew when its pins have changed."""
    pins = HERE / f"requirements-{peer}.txt"
    folder = scratch / f"v_{peer}"
    python = folder / "bin" / "python"
    stamp = folder / "pins.sha256"
    servers = HERE / f"npm-{peer}.txt"
    wanted = hashlib.sha256(pins.read_bytes() + (servers.read_bytes() if servers.exists() else b"")).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(folder)])
    run([str(python), "-m", "pip", "-q", "install", "--no-deps", "-r", str(pins)])
    if servers.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise Missing(f"no npm on this machine, which {peer}'s server comes by")
        quiet = ["--no-audit", "--no-fund", "--no-save", "--ignore-scripts"]
        run([npm, "install", "--prefix", str(folder), *quiet, *servers.read_text().split()])
    stamp.write_text(wanted)
    return python


def pinned(peer: str) -> dict[str, str]:
    lines = (HERE / f"requirements-{peer}.txt").read_text().split()
    return dict(line.split("==") for line in lines)


def npm_pinned(peer: str) -> dict[str, str]:
    """Servers of a peer that come by npm, and their versions."""
    lines = (HERE / f"npm-{peer}.txt").read_text().split()
    return {name.rpartition("/")[2]: version for name, _, version in (line.rpartition("@") for line in lines)}


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_WITHIN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} ..: {done.stderr.strip()[-300:]}")
