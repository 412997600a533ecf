from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.web.browser import chromium, log_in, new_context
from tests.web.server import ApiServer
from tests.web.story import MARKUP, LivingDriver, Story


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server over a catalog with a history, in which one job keeps running."""
    folder = tmp_path_factory.mktemp("web")
    url = f"sqlite:///{folder / 'catalog.db'}"
    Story(url, folder, reason=MARKUP).tell()
    home = folder / "airflow"
    home.mkdir()
    with LivingDriver(url), ApiServer(home, url) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser of this module alone: while Playwright runs, no test can run an event loop in this process."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def logged_in(server: ApiServer, browser: Browser) -> dict[str, object]:
    """The browser state after the login of the user ``operator``."""
    context = new_context(browser)
    log_in(context.new_page(), server, "operator", "/statecore/")
    state = context.storage_state()
    context.close()
    return dict(state)


@pytest.fixture
def complaints() -> list[str]:
    """Errors of the page's scripts and of the browser."""
    return []


@pytest.fixture
def page(browser: Browser, logged_in: dict[str, object], complaints: list[str]) -> Iterator[Page]:
    """A page of the user ``operator``."""
    context = new_context(browser, storage_state=logged_in, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    # Pages ask again and again: an answer that a test alters may be under way when the test is over.
    page.unroute_all(behavior="ignoreErrors")
    context.close()
