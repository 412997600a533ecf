"""One world for all tests of a session: it takes a minute to start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from stack.stack import Stack
from tests.e2e.world import World
from tests.support.paths import REPO
from tests.support.postgres import Database, PostgresServer
from tests.support.s3 import new_store
from tests.web.browser import chromium, log_in, new_context

FOLDER = REPO / ".run" / "e2e"


@pytest.fixture(scope="session")
def world(postgres_server: PostgresServer, s3_endpoint: str) -> Iterator[World]:
    """All that runs; what it leaves in ``.run/e2e`` stays there to be looked at."""
    Stack(FOLDER / "stack").stop()
    shutil.rmtree(FOLDER, ignore_errors=True)
    with World(
        FOLDER,
        catalog_url=Database(postgres_server).url,
        airflow_database_url=Database(postgres_server).url,
        store=new_store(s3_endpoint),
    ) as world:
        yield world


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(world: World, browser: Browser) -> Iterator[Page]:
    """A window of the user ``admin``, logged in."""
    context = new_context(browser, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    log_in(page, world, "admin", "/statecore/")
    yield page
    context.close()
