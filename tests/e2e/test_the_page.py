"""What the tests before have done to the job, on its page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.world import JOB, World

pytestmark = pytest.mark.e2e

CHARTS = ("rate", "backlog", "epochs", "parallelism")


def test_the_page_shows_every_rescale_decision_and_savepoint(world: World, page: Page) -> None:
    page.goto(f"{world.url}/statecore/")
    row = page.locator(f"tr[data-job={JOB}]")
    expect(row.locator(".condition")).to_have_text("running")
    page.screenshot(path=world.folder / "jobs.png")
    page.goto(f"{world.url}/statecore/job?name={JOB}")
    expect(page.locator("#condition")).to_have_text("running")
    page.get_by_role("button", name="1 h").click()
    for chart in CHARTS:
        expect(page.locator(f"#{chart} .main-svg").first).to_be_visible()
    for section, words in shown(world).items():
        for each in words:
            expect(page.locator(f"#{section}")).to_contain_text(each)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        page.screenshot(path=world.folder / f"job-{theme}.png", full_page=True, animations="disabled")


def shown(world: World) -> dict[str, list[str]]:
    """Return what has to stand in each section of the page."""
    runs, savepoints = world.catalog.rescale_runs(JOB), world.catalog.savepoints(JOB)
    decisions = world.decisions()
    assert runs and savepoints and decisions
    return {
        "rescales": [run.run_id for run in runs],
        "decisions": [str(decision.run_id) for decision in decisions],
        "savepoints": [savepoint.path for savepoint in savepoints],
    }
