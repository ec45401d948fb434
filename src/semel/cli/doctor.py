"""`semel doctor`: look at everything that could be wrong."""

from __future__ import annotations

from rich.text import Text

from semel import App
from semel.cli.exits import Exit
from semel.cli.paper import Paper
from semel.cli.verb import database_verb


@database_verb()
async def doctor(app: App, paper: Paper) -> Exit:
    """Look at everything that could be wrong. Exits 1 if a finding is not ok."""
    findings = await app.doctor()
    bad = [finding for finding in findings if not finding.ok]
    if paper.as_json:
        paper.data({"ok": not bad, "findings": findings})
    else:
        mark = {True: Text("ok", "green"), False: Text("NOT OK", "bold red")}
        paper.table(("", "What", "Found"), [(mark[f.ok], f.what, f.detail) for f in findings])
        paper.line(f"{len(bad)} not ok." if bad else "All well.", "bold red" if bad else "green")
    return Exit.FAILED if bad else Exit.OK
