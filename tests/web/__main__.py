"""``make pictures``: takes the documentation's screenshots of the web pages, into ``docs/images``.

With ``--all FOLDER``, every page and dialog, into that folder: see ``everything.py``.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.support.paths import REPO
from tests.web import everything
from tests.web.browser import chromium, log_in, new_context
from tests.web.server import ApiServer
from tests.web.story import FLIGHTS, LivingDriver, Story

PICTURES = REPO / "docs" / "images"
JOB = f"/statecore/job?name={FLIGHTS}"
_LARGEST_BYTES = 200_000
_COLOURS = 256


def main() -> None:
    """Take all screenshots."""
    parser = argparse.ArgumentParser(prog="python -m tests.web", description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="take every page and dialog, into this folder")
    every = parser.parse_args().all
    with tempfile.TemporaryDirectory(prefix="statecore-pictures-") as folder:
        if every is not None:
            with chromium() as browser:
                everything.take(browser, Path(folder), every)
            return
        url = f"sqlite:///{folder}/catalog.db"
        Story(url, Path(folder)).tell()
        home = Path(folder) / "airflow"
        home.mkdir()
        with LivingDriver(url), ApiServer(home, url) as server, chromium() as browser:
            # Airflow pauses new DAGs, which the page would show.
            with server.client() as client:
                client.unpause("rescale")
            for theme in ("light", "dark"):
                _take(server, browser, theme)


def _take(server: ApiServer, browser: Browser, theme: str) -> None:
    context = new_context(browser, color_scheme=theme, viewport={"width": 1280, "height": 620})
    page = context.new_page()
    log_in(page, server, "operator", "/statecore/")
    page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
    if theme == "light":
        page.goto(f"{server.url}/plugin/statecore")
        expect(page.frame_locator("iframe").locator("#jobs tr[data-job]")).to_have_count(6)
        _picture(page, "jobs")
    page.goto(f"{server.url}{JOB}")
    page.get_by_role("button", name="1 h").click()
    expect(page.locator("#rate").get_by_text("2 → 4")).to_be_visible()
    expect(page.locator(".strip .hm image")).to_be_visible()
    # From the top down to the state; the rest of the page is tables.
    page.evaluate("scrollTo(0, 0)")
    last = page.locator("#spread").bounding_box()
    assert last is not None
    page.set_viewport_size({"width": 1280, "height": round(last["y"] + last["height"]) + 16})
    _picture(page, f"job-{theme}")
    if theme == "light":
        page.set_viewport_size({"width": 1280, "height": 860})
        page.get_by_role("button", name="Rescale…").click()
        page.get_by_role("dialog").get_by_label("Parallelism", exact=True).fill("8")
        expect(page.locator(".sum")).to_contain_text("4 → 8")
        _picture(page, "rescale-dialog")
    context.close()


def _picture(page: Page, name: str) -> None:
    taken = page.screenshot(animations="disabled")
    file = PICTURES / f"{name}.png"
    # A palette keeps the files small; the rare colours of marks must survive.
    few = Image.open(io.BytesIO(taken)).convert("RGB").quantize(_COLOURS, Image.Quantize.MAXCOVERAGE)
    few.save(file, optimize=True)
    size = file.stat().st_size
    assert size < _LARGEST_BYTES, f"found {file} of {size} bytes; expected less than {_LARGEST_BYTES}; show less of it"
    print(f"{file.relative_to(REPO)}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
