"""``make pictures``: takes the pictures of the pages that the documentation shows, into ``docs/pictures``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.web.browser import chromium, log_in
from tests.web.server import REPO, ApiServer
from tests.web.story import FLIGHTS, LivingDriver, Story

PICTURES = REPO / "docs" / "pictures"
JOB = f"/statecore/job?name={FLIGHTS}"


def main() -> None:
    """Take them all."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="statecore-pictures-") as folder:
        url = f"sqlite:///{folder}/catalog.db"
        Story(url, Path(folder)).tell()
        home = Path(folder) / "airflow"
        home.mkdir()
        with LivingDriver(url), ApiServer(home, url) as server, chromium() as browser:
            for theme in ("light", "dark"):
                _take(server, browser, theme)


def _take(server: ApiServer, browser: Browser, theme: str) -> None:
    context = browser.new_context(color_scheme=theme, viewport={"width": 1280, "height": 800})  # type: ignore[arg-type]
    page = context.new_page()
    log_in(page, server, "operator", "/statecore/")
    if theme == "light":
        page.evaluate("localStorage.setItem('theme', 'light')")
        page.goto(f"{server.url}/plugin/statecore")
        expect(page.frame_locator("iframe").locator("#jobs tr")).to_have_count(5)
        _picture(page, "jobs")
    page.goto(f"{server.url}{JOB}")
    page.get_by_role("button", name="1 h").click()
    expect(page.locator("#rate").get_by_text("2 → 4")).to_be_visible()
    expect(page.locator(".strip .hm image")).to_be_visible()
    _picture(page, f"job-{theme}", full_page=True)
    if theme == "light":
        page.get_by_role("button", name="Rescale…").click()
        page.get_by_role("dialog").get_by_label("Parallelism", exact=True).fill("8")
        expect(page.locator(".sum")).to_contain_text("4 → 8")
        _picture(page, "rescale")
    context.close()


def _picture(page: Page, name: str, *, full_page: bool = False) -> None:
    page.screenshot(path=PICTURES / f"{name}.png", full_page=full_page, animations="disabled")
    print(f"docs/pictures/{name}.png")


if __name__ == "__main__":
    main()
