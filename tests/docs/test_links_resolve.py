"""Every link to a file of the repository, or to a heading, leads somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, anchors, links, short


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_links_resolve(page: Path) -> None:
    broken = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    todo = [DOCS / "index.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        todo += [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if link[0] != "#"]
    assert [short(page) for page in DOCS.rglob("*.md") if page not in seen] == []


def test_pages_of_the_site_link_only_to_each_other() -> None:
    """A site generator is given the folder docs and nothing else."""
    outside = [
        f"{short(page)}: {link}"
        for page in DOCS.rglob("*.md")
        for link in links(page)
        if link[0] != "#" and not (page.parent / link.partition("#")[0]).resolve().is_relative_to(DOCS)
    ]
    assert outside == []
