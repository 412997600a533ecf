"""A headless Chromium, and a login to Airflow."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.support.waiting import PATIENCE_S

# The machine's browser; Playwright would download its own.
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# These flags prevent Chromium's background requests.
_QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
]


class Server(Protocol):
    """Where the pages are, and the passwords of its users."""

    @property
    def url(self) -> str: ...

    @property
    def passwords(self) -> dict[str, str]: ...


# Airflow's own page loads in a second, or in ten beside other tests; on a machine that has just been set up, in more.
_PATIENCE_MS = PATIENCE_S * 1000


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the machine's Chromium, and end it.

    Raises:
        FileNotFoundError: There is none.

    """
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        raise FileNotFoundError(
            f"found none of {', '.join(_PROGRAMS)} on the PATH; expected a browser for the pages in Airflow; install "
            "one (apt-get install chromium), or leave these tests out (-m 'not browser')"
        )
    expect.set_options(timeout=_PATIENCE_MS)
    # Chromium refuses its sandbox to root.
    flags = [*_QUIET, "--no-sandbox"] if os.geteuid() == 0 else _QUIET
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        try:
            yield browser
        finally:
            browser.close()


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """Open a window of its own, whose actions wait as long as what is expected of it."""
    context = browser.new_context(**options)
    context.set_default_timeout(_PATIENCE_MS)
    return context


def log_in(page: Page, server: Server, user: str, path: str) -> None:
    """Go to a page as somebody who is not logged in, and do what Airflow's form asks for."""
    page.goto(f"{server.url}{path}")
    page.wait_for_url(re.compile("/auth/login"))
    page.locator("input[name=username]").fill(user)
    page.locator("input[name=password]").fill(server.passwords[user])
    page.locator("button[type=submit]").click()
    page.wait_for_url(lambda url: url == f"{server.url}{path}")
