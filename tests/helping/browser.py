"""A real Chromium for tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helping.patience import PAGE_PATIENCE

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    expect = sync_playwright = None

__all__ = ["browser", "expect", "opened"]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run"]  # fmt: skip


@pytest.fixture(scope="session")
def browser():
    """One for all tests; they are skipped where there is none."""
    if sync_playwright is None:
        pytest.skip("Playwright is not installed: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: install chromium, or Chrome")
    expect.set_options(timeout=1000 * PAGE_PATIENCE)
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=1000 * PAGE_PATIENCE)
        yield browser
        browser.close()


@contextmanager
def opened(
    browser,
    address: Path | str,
    *,
    width: int = 1280,
    height: int = 900,
    expected: str = "",
    before: str = "",
    **context,
) -> Iterator:
    """A page that must not complain: errors, blocked resources and requests to anywhere else fail the test.

    Only what has ``expected`` in it is let pass. ``before`` is a script that runs ahead of the page's own.
    """
    window = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce", **context)
    window.set_default_timeout(1000 * PAGE_PATIENCE)
    page = window.new_page()
    if before:
        page.add_init_script(before)
    complaints: list[str] = []
    own = address.resolve().as_uri() if isinstance(address, Path) else address
    page.on("console", lambda message: complaints.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: _check(request.url, own, complaints))
    page.goto(own)
    page.wait_for_selector("#figures > div")  # drawn
    yield page
    window.close()
    unexpected = [text for text in complaints if not expected or expected not in text]
    assert not unexpected, unexpected


def _check(url: str, own: str, complaints: list[str]) -> None:
    origin = own if own.startswith("file:") else own.split("/", 3)[2]
    if not url.startswith("data:") and origin not in url:
        complaints.append(f"request to {url}")
