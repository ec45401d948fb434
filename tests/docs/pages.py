"""The pages, and what is in them: code blocks, tables, links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", *DOCS.rglob("*.md")])

_FENCE = re.compile(r"(?m)^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_FROM = re.compile(r'from="([^"]+)"')
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: what it is, what it says, and where."""

    language: str
    marks: str
    body: str
    line: int

    @property
    def title(self) -> str | None:
        """The file that the reader is asked to write."""
        found = _TITLE.search(self.marks)
        return found[1] if found else None

    @property
    def excerpt_of(self) -> str | None:
        """The file of the repository that it shows a part of."""
        found = _FROM.search(self.marks)
        return found[1] if found else None

    @property
    def runs(self) -> bool:
        return self.language == "python" and "no-run" not in self.marks


def short(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        language, _, marks = fence["info"].strip().partition(" ")
        found.append(Block(language, marks, fence["body"], text.count("\n", 0, fence.start()) + 2))
    return found


def prose(text: str) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", text)


def links(page: Path) -> list[str]:
    """Links to other files of the repository, and to headings."""
    found = _LINK.findall(prose(page.read_text(encoding="utf-8")))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """What headings are called in links."""
    heads = re.findall(r"(?m)^#+ (.+)$", prose(page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def table(text: str, first: str) -> list[list[str]]:
    """The rows of the table whose head begins with `first`, cells without backticks."""
    rows: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            if inside:
                break
        elif inside and not set(line) <= set("|-: "):
            rows.append(cells)
        elif cells[0] == first:
            inside = True
            rows.append(cells)
    assert rows, f"no table that begins with {first!r}"
    return rows
