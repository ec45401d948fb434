"""One virtual environment per peer, made on demand from its pinned requirements."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
INSTALL_WITHIN = 300.0


def python_of(peer: str, scratch: Path) -> Path:
    """The interpreter of the peer's environment, which is made anew when its pins have changed."""
    pins = HERE / f"requirements-{peer}.txt"
    folder = scratch / f"v_{peer}"
    python = folder / "bin" / "python"
    stamp = folder / "pins.sha256"
    wanted = hashlib.sha256(pins.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(folder)])
    run([str(python), "-m", "pip", "-q", "install", "--no-deps", "-r", str(pins)])
    stamp.write_text(wanted)
    return python


def pinned(peer: str) -> dict[str, str]:
    lines = (HERE / f"requirements-{peer}.txt").read_text().split()
    return dict(line.split("==") for line in lines)


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_WITHIN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} ..: {done.stderr.strip()[-300:]}")
