"""`module:app` that cannot be found says what to do, in one line, and exits with 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import semel

FILES = {
    "till_good.py": "import semel\napp = semel.App(config=None)\nother = 3\n",
    "till_broken.py": "import semel\nx = 1 / 0\n",
    "till_needs.py": "import nothing_of_that_name\n",
    "till_twice.py": "import semel\napp = semel.App(config=None)\n@app.task\ndef f(self): ...\n",
    "till_memory.py": "import semel\napp = semel.App('sqlite:///:memory:', config=None)\n@app.task\ndef f(): ...\n",
}


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("till_good", "such as till_good:app"),
        ("till_good.py:app", "till_good:app"),
        ("till_god:app", "Did you mean 'till_good'?"),
        ("nothing.at.all:app", "no module 'nothing'"),
        ("till_good:ap", "Did you mean till_good:app?"),
        ("till_good:other", "is a int, not a semel.App"),
        ("till_good:app", "has no tasks"),
        ("till_broken:app", "ZeroDivisionError: division by zero"),
        ("till_needs:app", "No module named 'nothing_of_that_name'"),
        ("till_twice:app", "is a method"),
        ("till_memory:app", "no other process can reach"),
    ],
)
def test_says_what_to_do(target: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("semel.cli.worker_processes.StopRequests.listen", lambda self: None)
    monkeypatch.syspath_prepend(str(tmp_path))
    told = semel("worker", target)
    assert (told.code, text in told.err, len(told.err.splitlines())) == (2, True, 1), told
