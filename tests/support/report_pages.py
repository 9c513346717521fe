"""Reads the content of a report's page, and opens pages in a real browser."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_CONTENT = re.compile(r'<script type="application/json" id="content">(.*?)</script>', re.DOTALL)
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def content(output: Path) -> dict[str, Any]:
    """The content of the page in an output."""
    return content_of((output / "report.html").read_text("utf-8"))


def content_of(page: str) -> dict[str, Any]:
    """The one element of JSON in a page."""
    (found,) = _CONTENT.findall(page)
    return json.loads(found)


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium; the test is skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="make install")
    program = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with sync_api.sync_playwright() as driver:
        # As root, in a container, Chromium has no sandbox; it opens files of tests alone.
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()
