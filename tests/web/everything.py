"""``make pictures ALL=1``: takes every page and dialog, in both themes and at both widths, for a person to look at.

light-1440/jobs-0.png       the list without a job; then with one, with those of the story, and with 200
light-1440/job-orders.png   a job's page, from its top to its end
light-1440/dialog-stop.png  a dialog
dark-390/…                  the same at night, on a phone
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect

from statecore.catalog import Catalog
from tests.web.browser import log_in, new_context
from tests.web.server import ApiServer
from tests.web.story import FLIGHTS, QUERY, LivingDriver, Story

THEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
WIDTHS = (1440, 390)
HEIGHT = 844
MANY_JOBS = 200
ALONE = "first-job"
# The button of each dialog of a running job, and what it says once it has loaded its plan.
DIALOGS = {
    "Rescale…": "Expected downtime",
    "Stop…": "writes a savepoint",
    "Savepoint…": "makes a savepoint",
    "Catch up…": "To drain with",
    "Upgrade…": "Job file",
    "Turn off…": "decides nothing",
}


def take(browser: Browser, folder: Path, pictures: Path) -> None:
    """Take all pictures.

    Args:
        browser: Opens the pages.
        folder: An empty one, for a catalog and an Airflow.
        pictures: Where the pictures go.

    """
    url = f"sqlite:///{folder}/catalog.db"
    home = folder / "airflow"
    home.mkdir()
    with Catalog(url) as catalog:
        catalog.create_schema()
        with ApiServer(home, url) as server:
            _list(browser, server, pictures, jobs=0)
            _register(catalog, ALONE, folder)
            _list(browser, server, pictures, jobs=1)
            _pages(browser, server, pictures, {f"job-{ALONE}": f"job?name={ALONE}"})
            Story(url, folder).tell()
            told = len(catalog.jobs.all())
            with LivingDriver(url):
                _list(browser, server, pictures, jobs=told)
                names = (FLIGHTS, "orders", "clicks", "payments", QUERY)
                pages = {f"job-{name}": f"job?name={name}" for name in names}
                _pages(browser, server, pictures, {**pages, "log": f"log?name={FLIGHTS}", "runbook": "runbook"})
                _dialogs(browser, server, pictures)
                for number in range(MANY_JOBS - told):
                    _register(catalog, f"team-{number % 7}-stream-{number:03}", folder, running=number % 3 == 0)
                _list(browser, server, pictures, jobs=MANY_JOBS)


def _register(catalog: Catalog, name: str, folder: Path, *, running: bool = False) -> None:
    catalog.jobs.register(
        name, artifact=f"/jobs/{name}.py", store=str(folder / name), master_url="local[2]", parallelism=2,
        max_parallelism=128,
    )  # fmt: skip
    if running:
        catalog.jobs.set_desired(name, state="running")


@contextmanager
def _windows(browser: Browser, server: ApiServer, pictures: Path) -> Iterator[list[tuple[Page, Path]]]:
    """Open one window for each theme and width, logged in, with the folder of its pictures."""
    windows = []
    contexts = []
    for theme in THEMES:
        for width in WIDTHS:
            context = new_context(browser, color_scheme=theme, viewport={"width": width, "height": HEIGHT})
            contexts.append(context)
            page = context.new_page()
            log_in(page, server, "operator", "/statecore/")
            to = pictures / f"{theme}-{width}"
            to.mkdir(parents=True, exist_ok=True)
            windows.append((page, to))
    try:
        yield windows
    finally:
        for context in contexts:
            context.close()


def _list(browser: Browser, server: ApiServer, pictures: Path, *, jobs: int) -> None:
    with _windows(browser, server, pictures) as windows:
        for page, to in windows:
            page.goto(f"{server.url}/statecore/")
            expect(page.locator("#jobs tr[data-job]")).to_have_count(jobs)
            expect(page.get_by_text("Loading…")).to_have_count(0)
            _picture(page, to / f"jobs-{jobs}.png")


def _pages(browser: Browser, server: ApiServer, pictures: Path, paths: dict[str, str]) -> None:
    with _windows(browser, server, pictures) as windows:
        for name, path in paths.items():
            for page, to in windows:
                page.goto(f"{server.url}/statecore/{path}")
                expect(page.locator("main")).to_be_visible()
                # All parts have been loaded, or say what they lack.
                expect(page.get_by_text("Loading…")).to_have_count(0)
                _picture(page, to / f"{name}.png")


def _dialogs(browser: Browser, server: ApiServer, pictures: Path) -> None:
    with _windows(browser, server, pictures) as windows:
        for page, to in windows:
            page.goto(f"{server.url}/statecore/job?name={FLIGHTS}")
            for button, said in DIALOGS.items():
                _dialog(page, to, button, said)
            page.goto(f"{server.url}/statecore/job?name=clicks")
            _dialog(page, to, "Start…", "The supervisor launches")
            page.goto(f"{server.url}/statecore/job?name=payments")
            _dialog(page, to, "Abort…", "payments")


def _dialog(page: Page, to: Path, button: str, said: str) -> None:
    page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(said)
    page.screenshot(path=to / f"dialog-{button.rstrip('…').lower().replace(' ', '-')}.png", animations="disabled")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def _picture(page: Page, file: Path) -> None:
    page.screenshot(path=file, full_page=True, animations="disabled")
    print(file)
