"""Run the tests again and again, every other time on a busy machine, and tell which of them failed in which run.

    python -m tests.repeat                                          # six runs of everything but `proof`
    python -m tests.repeat --runs 200 --busy 2 -- tests/cli -k demo   # a suspect, many times

Arguments after `--` go to pytest in place of the whole suite. Ctrl-C ends it with the table of what there was so far.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

EVERYTHING = ["--ignore=tests/tidy"]
BUSY = "while True: pass"


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that do nothing, as fast as they can."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def failures(report: Path) -> dict[str, str]:
    """What failed, by the name of the test: the last line of its error."""
    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        for kind in ("failure", "error"):
            if (problem := case.find(kind)) is not None:
                said = (problem.get("message") or "").strip().splitlines()
                found[f"{case.get('classname')}::{case.get('name')}"] = said[0][:160] if said else kind
    return found


def run(pytest: list[str], workers: int) -> dict[str, str]:
    """All of it once. A run that ends without a report has failed as a whole."""
    with tempfile.TemporaryDirectory(prefix="semel-repeat-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-n", str(workers), "-m", "not proof"]
        command += ["-p", "no:cacheprovider", f"--junitxml={report}", *pytest]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        found = failures(report) if report.exists() else {}
        if done.returncode and not found:
            found["(the run itself)"] = done.stdout[-500:]
        return found


def main() -> int:
    """Zero if every run was green."""
    parser = argparse.ArgumentParser(prog="python -m tests.repeat", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--busy", type=int, default=2, help="processes beside every other run")
    parser.add_argument("--workers", type=int, default=3, help="of pytest-xdist")
    parser.add_argument("pytest", nargs="*", default=EVERYTHING)
    options = parser.parse_args()
    failed: dict[str, list[int]] = {}
    with contextlib.suppress(KeyboardInterrupt):
        for number in range(1, options.runs + 1):
            beside, began = options.busy if number % 2 == 0 else 0, time.monotonic()
            with busy(beside):
                found = run(options.pytest or EVERYTHING, options.workers)
            told = f"{len(found)} failed" if found else "green"
            print(
                f"run {number} of {options.runs}, {beside} busy: {told}, {time.monotonic() - began:.0f} s", flush=True
            )
            for name, why in found.items():
                failed.setdefault(name, []).append(number)
                print(f"    {name}\n        {why}", flush=True)
    for name, runs in sorted(failed.items(), key=lambda one: -len(one[1])):
        print(f"{len(runs):4} times  {name}  (runs {', '.join(map(str, runs))})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
