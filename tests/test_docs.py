"""The documentation is finished, and its links lead somewhere."""

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def anchors(page):
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_are_there(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if re.match(r"https?:|mailto:", link):
            continue
        target, _, anchor = link.partition("#")
        there = page.parent / target if target else page
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_left_to_fill_in(page):
    assert not re.findall(r"\b(?:TODO|FIXME|XXX|[A-Z]+_(?:OUTPUT|DONE))\b", page.read_text("utf-8"))


def test_functions_of_the_method_exist():
    page = (ROOT / "docs" / "method.md").read_text("utf-8")
    table = page.split("## Equation to function")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \|", table, re.MULTILINE)
    names = re.findall(r"`([a-z_]+(?:\.\w+)+)`", " ".join(rows))
    assert len(names) > 20
    for name in names:
        pkgutil.resolve_name(f"newfound.{name}")
