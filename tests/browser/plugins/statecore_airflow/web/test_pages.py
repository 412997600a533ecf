"""The pages in a real browser, from a real Airflow API server."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.waiting import wait
from tests.web.browser import chromium, log_in, new_context
from tests.web.server import ApiServer
from tests.web.story import FLIGHTS, KNOWN_TAIL, MARKUP, QUERY

JOB = f"/statecore/job?name={FLIGHTS}"
RANGE = "document.getElementById('lag').layout?.xaxis?.range ?? null"
CHARTS = ["rate", "backlog", "lag", "epochs", "parallelism"]


def test_the_jobs_are_listed_with_states_in_words_and_ages_that_tick(
    page: Page, server: ApiServer, complaints: list[str]
) -> None:
    page.goto(f"{server.url}/statecore/")
    rows = page.locator("#jobs tr[data-job]")
    expect(rows).to_have_count(6)
    expect(rows.first).to_contain_text("failed")
    expect(page.locator("#jobs .why").first).to_contain_text("db:5432 refusing the connection")
    row = page.locator(f"tr[data-job={FLIGHTS}]")
    expect(row.locator(".condition")).to_have_text("running")
    expect(row).to_contain_text("4 of 128")
    savepoint = row.locator("time").last
    before = savepoint.inner_text()
    expect(savepoint).not_to_have_text(before)
    row.get_by_role("link", name=FLIGHTS).click()
    expect(page.locator("#condition")).to_have_text("running")
    assert complaints == []


def test_a_long_finding_folds_and_a_lag_of_days_says_what_makes_it(page: Page, server: ApiServer) -> None:
    error = "found a sink that refuses its rows, and says why at length; " * 8
    lag_ms = 271 * 86_400_000

    def altered(route: Route) -> None:
        answer = route.fetch().json()
        for job in answer["jobs"]:
            job["backlog"] = {**(job["backlog"] or {}), "records": 5, "files": None, "bytes": None}
            job["backlog"]["event_time_lag_ms"] = lag_ms
            job["findings"] = [
                {"found": error, "todo": "run `statecore logs`", "alert": "crash_loop", "severity": "critical"}
                | {"is_new": True}
            ]
        route.fulfill(json=answer)

    page.route("**/api/jobs", altered)
    page.goto(f"{server.url}/statecore/")
    row = page.locator(f"tr[data-job={FLIGHTS}]")
    expect(row).to_contain_text("replaying, events 271 days old")
    folded = page.locator("#jobs .why details").first
    expect(folded).not_to_have_attribute("open", "")
    expect(folded.locator("summary")).to_contain_text("new")
    folded.locator("summary").click()
    expect(folded.locator("code")).to_have_text("statecore logs")
    # It stays open when the list is drawn anew.
    lag_ms += 86_400_000
    expect(row).to_contain_text("272 days old")
    expect(page.locator("#jobs .why details").first).to_have_attribute("open", "")


def test_the_page_of_a_job_draws_its_charts_and_goes_on_by_itself(
    page: Page, server: ApiServer, complaints: list[str]
) -> None:
    page.goto(f"{server.url}{JOB}")
    page.get_by_role("button", name="1 h").click()
    for chart in CHARTS:
        expect(page.locator(f"#{chart} .main-svg").first).to_be_visible()
        # Three quarters of an hour in a chart of an hour: a line, or bars, and not only axes.
        drawn = page.locator(f"#{chart} .scatterlayer .js-line, #{chart} .barlayer .point path")
        expect(drawn.first).to_be_attached()
        expect(page.locator(f"#{chart}").get_by_text("2 → 4")).to_be_visible()
        expect(page.locator(f"#{chart}").get_by_text("decided 4")).to_be_visible()
    expect(page.locator("#rate .shapelayer path")).to_have_count(3)
    strip = page.locator(".strip")
    expect(strip.locator(".hm image")).to_be_visible()
    expect(strip.get_by_text("subtask 3")).to_be_visible()
    epoch = page.locator(".tile", has_text="Newest epoch").locator(".value")
    before = epoch.inner_text()
    expect(epoch).not_to_have_text(before)
    partitions = page.locator("#partitions tbody tr")
    expect(partitions).to_have_count(3)
    expect(partitions.first).to_contain_text("flights-0")
    backlog = page.locator(".tile", has_text="Backlog")
    expect(backlog).to_contain_text(re.compile(r"the oldest for \d+ .*fullest partition 1\.5 times the average"))
    event_time = page.locator(".tile", has_text="Event-time lag")
    expect(event_time).to_contain_text(re.compile(r"held back by rules, last moved .* ago; .* ago; watermark 20"))
    metrics = page.locator("#metrics tbody tr")
    expect(metrics).to_have_text(
        [
            re.compile(r"^by_tailcancelledcounter[\d,]+$"),
            re.compile(r"^by_tailaircraftgauge900 to 1,150 in \d subtasks$"),
            re.compile(r"^by_taildelay_minhistogram1,000 values, mean 21\.5, half at most 8, 99 % at most 64$"),
        ]
    )
    # Free text is not rendered as markup.
    expect(page.locator("#rescales")).to_contain_text(MARKUP)
    assert page.locator("#rescales b").count() == 0
    expect(page.locator("#decisions")).to_contain_text("was refused before it changed anything")
    expect(page.locator("#policy")).to_contain_text("lag 2 s")
    assert complaints == []


def test_a_query_of_sparks_own_is_shown_with_what_it_has_and_asked_for_what_it_can(
    page: Page, server: ApiServer, complaints: list[str]
) -> None:
    page.goto(f"{server.url}/statecore/")
    row = page.locator(f"tr[data-job={QUERY}]")
    expect(row).to_contain_text("Spark’s own query; rewrite")
    expect(row).to_contain_text("3 partitions")
    expect(page.locator(f"tr[data-job={FLIGHTS}]")).to_contain_text("live, by reference, rewrite")
    row.get_by_role("link", name=QUERY).click()
    expect(page.locator(".tile", has_text="State partitions")).to_contain_text("3")
    state = page.locator("#spread")
    expect(state).to_contain_text("visits-checkpoint")
    expect(state.locator("tbody tr")).to_have_text(re.compile(r"^0 stateStoreSave12.*–$"))
    page.get_by_role("button", name="Rescale…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("[data-param=parallelism]")).to_be_visible()
    expect(dialog.locator("[data-param=method], [data-param=max_parallelism]")).to_have_count(0)
    dialog.locator("#field-parallelism").fill("6")
    expect(dialog.locator("#plan")).to_contain_text("3 → 6 state partitions, rewrite")
    expect(dialog.locator("#plan")).to_contain_text("Operator 0, aggregation: 3 state partitions, 12 rows")
    assert complaints == []


def test_charts_are_in_utc_wherever_they_are_looked_at(
    server: ApiServer, browser: Browser, logged_in: dict[str, object]
) -> None:
    context = new_context(browser, storage_state=logged_in, timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.goto(f"{server.url}{JOB}")
    expect(page.locator("#rate .main-svg").first).to_be_visible()
    end = page.evaluate("document.getElementById('rate').layout.xaxis.range[1]")
    newest = page.evaluate("document.getElementById('rate').data[0].x.at(-1)")
    for at in (end, newest):
        ahead_s = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp() - time.time()
        assert abs(ahead_s) < 900, at
    expect(page.locator("#clock")).to_have_text("UTC; your clock is 5 h 30 min ahead.")
    expect(page.locator("#savepoints time").first).to_have_attribute("title", re.compile(r" UTC, .* by your clock$"))
    context.close()


def _shown(page: Page) -> timedelta:
    """Return how long the time range of the charts is; nothing before they are drawn."""
    shown = page.evaluate(RANGE)
    return datetime.fromisoformat(shown[1]) - datetime.fromisoformat(shown[0]) if shown else timedelta(0)


def test_a_range_is_dragged_in_one_chart_and_all_show_it_until_it_is_left(page: Page, server: ApiServer) -> None:
    page.goto(f"{server.url}{JOB}")
    page.get_by_role("button", name="1 h").click()
    plot = page.locator("#rate .nsewdrag").first
    expect(plot).to_be_attached()
    # Until then the charts show a quarter of an hour, of which the middle of the hour is no part.
    wait(lambda: _shown(page) > timedelta(minutes=50), "the hour")
    before = page.evaluate(RANGE)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None

    def is_shared() -> bool:
        # A chart that is drawn anew has no crosshair until the mouse moves.
        for share in (0.69, 0.7):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        return page.locator("#lag .hoverlayer .legend").count() > 0

    wait(is_shared, "the crosshair in another chart")
    page.mouse.down()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    leave = page.get_by_role("button", name="Back to now")
    expect(leave).to_be_visible()
    # Playwright's own waiting would have the page evaluate text, which it does not.
    wait(lambda: page.evaluate(RANGE)[0] > before[0], "the range in another chart")
    leave.click()
    expect(leave).to_be_hidden()
    expect(page.get_by_role("button", name="1 h")).to_have_attribute("aria-pressed", "true")


def test_the_dataflow_is_drawn_and_an_epoch_opens_its_subtasks(
    page: Page, server: ApiServer, complaints: list[str]
) -> None:
    page.goto(f"{server.url}{JOB}")
    nodes = page.locator("#dataflow .node")
    expect(nodes).to_have_count(5)
    expect(nodes.first).to_contain_text("arrive")
    expect(nodes.filter(has_text="by_tail")).to_contain_text("busiest 0: 1.")
    expect(page.locator("#dataflow path")).to_have_count(4)
    expect(page.locator("#epoch-list tbody tr")).to_have_count(50)
    # In one step: the job commits an epoch a second, and the list moves on between a look at it and a click.
    number = page.locator("#epoch-list button").first.evaluate("button => { button.click(); return button.innerText }")
    subtasks = page.locator("#subtasks")
    expect(subtasks).to_contain_text(f"Subtasks of epoch {number.removeprefix('#')} of lineage 1")
    expect(subtasks.locator("tbody tr")).to_have_count(4)
    subtasks.get_by_role("button", name="Close").click()
    expect(subtasks).to_be_hidden()
    expect(page.locator("#failures")).to_contain_text("found parallelism 512")
    expect(page.locator("#definition")).to_contain_text("password")
    expect(page.locator("#audit")).to_contain_text("parallelism 2 → 4")
    expect(page.get_by_role("link", name="Spark UI")).to_have_attribute("href", "http://driver:4040")
    assert complaints == []


def test_what_a_key_has_in_state_is_looked_up(page: Page, server: ApiServer, complaints: list[str]) -> None:
    page.goto(f"{server.url}{JOB}")
    page.get_by_label("Key", exact=True).fill(KNOWN_TAIL)
    page.get_by_role("button", name="Look up").click()
    found = page.locator("#found")
    expect(found).to_contain_text(f'by_tail, k "{KNOWN_TAIL}", as of epoch')
    expect(found.locator("tbody tr")).to_have_text(re.compile("total.*7"))
    page.get_by_label("Key", exact=True).fill("<b>nobody</b>")
    page.get_by_label("Key", exact=True).press("Enter")
    expect(found).to_contain_text("This key has no state.")
    assert complaints == []
    page.goto(f"{server.url}/statecore/job?name={QUERY}")
    expect(page.locator("#state-title")).to_have_text("State of each operator")
    expect(page.locator("#lookup")).to_be_hidden()


def test_marks_that_would_stand_upon_each_other_share_a_label(page: Page, server: ApiServer) -> None:
    page.goto(f"{server.url}{JOB}")
    page.get_by_role("button", name="24 h").click()
    expect(page.locator("#rate").get_by_text("2 → 4 +2")).to_be_visible()
    expect(page.locator("#rate").get_by_text("2 → 512")).to_have_count(0)


def test_what_a_job_without_figures_has_not_is_said_and_not_drawn(page: Page, server: ApiServer) -> None:
    page.goto(f"{server.url}/statecore/job?name=orders")
    expect(page.locator("#advice")).to_contain_text("db:5432 refusing")
    for chart in CHARTS:
        expect(page.locator(f"#{chart}").get_by_text("no data in this time range")).to_be_visible()
        expect(page.locator(f"#{chart} .ytick")).to_have_count(0)
    expect(page.locator("#spread")).to_contain_text("No counts yet")
    expect(page.locator("#savepoints")).to_contain_text("No savepoint yet.")


def test_of_a_job_that_is_not_there_only_that_is_said(page: Page, server: ApiServer) -> None:
    page.goto(f"{server.url}/statecore/job?name=nobody")
    expect(page.locator("#trouble")).to_contain_text("known jobs: clicks, flight_delays")
    expect(page.locator("main")).to_be_hidden()


def test_on_a_telephone_nothing_is_out_of_sight(page: Page, server: ApiServer) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server.url}/statecore/")
    row = page.locator(f"tr[data-job={FLIGHTS}]")
    row.scroll_into_view_if_needed()
    for figure in (row.get_by_text("0 records"), row.locator("time").last, row.locator(".condition")):
        expect(figure).to_be_in_viewport(ratio=1)
    for path in (f"{JOB}", f"/statecore/log?name={FLIGHTS}"):
        page.goto(f"{server.url}{path}")
        expect(page.locator("#freshness")).to_contain_text("live")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.goto(f"{server.url}{JOB}")
    page.get_by_role("button", name="Rescale…").click()
    submit = page.get_by_role("dialog").get_by_role("button", name="Rescale", exact=True)
    expect(submit).to_be_enabled()
    expect(submit).to_be_in_viewport(ratio=1)


def test_nothing_moves_when_what_is_loaded_arrives(page: Page, server: ApiServer) -> None:
    page.goto(f"{server.url}{JOB}")
    expect(page.locator("#rate .main-svg").first).to_be_visible()
    # Shifts as the browser itself counts them; 0.1 is where they begin to be a nuisance.
    shift = page.evaluate(
        """() => new Promise((resolve) => {
            let sum = 0;
            new PerformanceObserver((list) => list.getEntries().forEach((each) => { sum += each.value; }))
                .observe({ type: "layout-shift", buffered: true });
            setTimeout(() => resolve(sum), 300);
        })"""
    )
    assert shift < 0.1


def test_the_colours_follow_the_system_airflow_and_the_button(page: Page, server: ApiServer) -> None:
    theme = page.locator("html")
    page.emulate_media(color_scheme="dark")
    page.goto(f"{server.url}{JOB}")
    expect(theme).to_have_attribute("data-theme", "dark")
    page.emulate_media(color_scheme="light")
    expect(theme).to_have_attribute("data-theme", "light")
    page.evaluate("localStorage.setItem('theme', 'dark')")
    page.reload()
    expect(theme).to_have_attribute("data-theme", "dark")
    expect(page.locator("#rate .main-svg").first).to_be_visible()
    tick = page.locator("#rate .ytick text").first
    dark = tick.evaluate("(each) => getComputedStyle(each).fill")
    page.locator("#theme").click()
    expect(theme).to_have_attribute("data-theme", "light")
    expect(page.locator("#theme")).to_have_text("Theme: light")
    expect(tick).not_to_have_css("fill", dark)
    page.evaluate("localStorage.clear()")


def test_the_dialog_shows_the_plan_and_submits_a_run_of_the_dag(
    page: Page, server: ApiServer, complaints: list[str]
) -> None:
    page.goto(f"{server.url}{JOB}")
    page.get_by_role("button", name="Rescale…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Parallelism", exact=True).fill("8")
    expect(dialog.locator(".sum")).to_contain_text("Parallelism 4 → 8")
    expect(dialog.locator(".downtime")).to_contain_text("none; the running driver changes the parallelism")
    dialog.get_by_label("Method").select_option("by_reference")
    expect(dialog.locator(".downtime")).to_contain_text("about 29 s (28 s to 31 s in 3 rescales)")
    expect(dialog.locator(".shares tbody tr")).to_have_count(8)
    dialog.get_by_label("Reason").fill("the <i>night</i> shift")
    dialog.get_by_role("button", name="Rescale", exact=True).click()
    run = dialog.locator("#outcome a")
    expect(run).to_be_visible()
    expect(dialog.locator("#outcome")).to_contain_text("paused")
    with server.client() as client:
        found = client._request("GET", f"/dags/rescale/dagRuns/{run.inner_text()}")
    assert found is not None
    assert found["conf"]["job"] == FLIGHTS and found["conf"]["parallelism"] == 8
    assert found["conf"]["reason"] == "the <i>night</i> shift"
    assert (found["triggering_user_name"], found["triggered_by"]) == ("operator", "ui")
    expect(run).to_have_attribute("href", re.compile(f"{server.url}/dags/rescale/runs/manual__"))
    assert complaints == []


def test_the_dialog_says_why_something_is_not_possible(page: Page, server: ApiServer) -> None:
    page.goto(f"{server.url}{JOB}")
    page.get_by_role("button", name="Rescale…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Parallelism", exact=True).fill("129")
    expect(dialog.locator(".refusal")).to_contain_text("128")
    expect(dialog.get_by_role("button", name="Rescale", exact=True)).to_be_disabled()


def test_each_change_says_first_what_it_will_do_and_a_stop_is_a_run_of_its_dag(
    page: Page, server: ApiServer, complaints: list[str]
) -> None:
    page.goto(f"{server.url}{JOB}")
    dialog = page.get_by_role("dialog")
    for button, said, focus in (
        ("Savepoint…", "makes a savepoint of its newest epoch", "dialog-title"),
        ("Catch up…", "To drain with: parallelism", "field-parallelism"),
        ("Upgrade…", "Job file: ", "field-artifact"),
        ("Stop…", "writes a savepoint, and ends", "field-reason"),
    ):
        page.get_by_role("button", name=button).click()
        expect(dialog.locator("#plan")).to_contain_text(said)
        assert page.evaluate("document.activeElement.id") == focus
        if button != "Stop…":
            dialog.get_by_role("button", name="Close").click()
            expect(dialog).to_be_hidden()
    dialog.get_by_role("button", name="Stop with savepoint").click()
    run = dialog.locator("#outcome a")
    expect(run).to_have_attribute("href", re.compile(f"{server.url}/dags/stop/runs/manual__"))
    with server.client() as client:
        found = client._request("GET", f"/dags/stop/dagRuns/{run.inner_text()}")
    assert found is not None and found["conf"]["job"] == FLIGHTS
    page.goto(f"{server.url}/statecore/job?name=clicks")
    page.get_by_role("button", name="Start…").click()
    expect(dialog.locator("#plan")).to_contain_text("The supervisor launches a driver")
    expect(page.get_by_role("button", name="Stop…")).to_have_count(0)
    assert complaints == []


def test_a_dialog_hears_nothing_of_a_change_that_was_closed(
    page: Page, server: ApiServer, complaints: list[str]
) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/api/v2/dags/upgrade/details", hold)
    page.route("**/api/v2/dags/stop/dagRuns", hold)
    page.goto(f"{server.url}{JOB}")
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Stop…").click()
    dialog.get_by_role("button", name="Stop with savepoint").click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Upgrade…").click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Rescale…").click()
    expect(dialog.locator(".sum")).to_contain_text("Parallelism 4 → 4")
    # Playwright calls `hold` while it is asked something.
    wait(lambda: page.evaluate("1") and len(held) == 2, "both requests")
    stop, upgrade = sorted(held, key=lambda each: "details" in each.request.url)
    with page.expect_response("**/details"):
        upgrade.continue_()
    with page.expect_response("**/dagRuns"):
        stop.fulfill(json={"dag_run_id": "manual__late", "state": "queued"})
    # What a page does with an answer, it has done by its next turn.
    page.evaluate("new Promise((done) => setTimeout(done))")
    expect(dialog.locator("[data-param=parallelism]")).to_be_visible()
    expect(dialog.locator("#outcome")).to_be_empty()
    expect(dialog.get_by_role("button", name="Rescale", exact=True)).to_be_enabled()
    assert complaints == []


def test_a_policy_is_turned_off_and_on(page: Page, server: ApiServer) -> None:
    page.goto(f"{server.url}{JOB}")
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Turn off…").click()
    expect(dialog).to_contain_text("the policy decides nothing")
    dialog.get_by_role("button", name="Turn off", exact=True).click()
    expect(page.locator("#policy")).to_have_text("The job's policy is off.")
    page.get_by_role("button", name="Turn on…").click()
    expect(dialog).to_contain_text("between parallelism 2 and 8")
    dialog.get_by_role("button", name="Turn on", exact=True).click()
    expect(page.locator("#policy")).to_contain_text("Evaluated")


def test_who_may_only_look_finds_the_buttons_closed(server: ApiServer, browser: Browser) -> None:
    context = new_context(browser)
    page = context.new_page()
    log_in(page, server, "viewer", JOB)
    expect(page.locator("#condition")).to_have_text("running")
    for button in ("Stop…", "Savepoint…", "Catch up…", "Upgrade…", "Rescale…", "Turn off…", "Look up"):
        expect(page.get_by_role("button", name=button)).to_be_disabled()
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nobody_is_kept_out_by_how_a_page_is_made(
    page: Page, server: ApiServer, theme: Literal["light", "dark"]
) -> None:
    page.emulate_media(color_scheme=theme)

    def require_accessible() -> None:
        found = Axe().run(page).response["violations"]
        assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found] == []

    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 844})
        page.goto(f"{server.url}/statecore/")
        expect(page.locator("#jobs tr[data-job]")).to_have_count(6)
        require_accessible()
        page.goto(f"{server.url}{JOB}")
        expect(page.locator(".strip .hm image")).to_be_visible()
        expect(page.locator("#audit table")).to_be_attached()
        require_accessible()
        assert page.evaluate("document.documentElement.scrollWidth") == width
        for button, said in (("Rescale…", "Expected downtime"), ("Upgrade…", "Job file")):
            page.get_by_role("button", name=button).click()
            expect(page.get_by_role("dialog").locator("#plan")).to_contain_text(said)
            require_accessible()
            page.get_by_role("dialog").get_by_role("button", name="Close").click()
    for path in (f"log?name={FLIGHTS}", "runbook"):
        page.goto(f"{server.url}/statecore/{path}")
        expect(page.locator("#text, main.runbook").first).not_to_be_empty()
        require_accessible()


def test_on_a_narrow_screen_the_list_shows_whole_names_and_messages(page: Page, server: ApiServer) -> None:
    def altered(route: Route) -> None:
        answer = route.fetch().json()
        jobs = [{**job, "name": f"{job['name']}-of-a-team-that-names-its-streams-at-length"} for job in answer["jobs"]]
        route.fulfill(json={**answer, "jobs": jobs[:jobs_shown]})

    page.route("**/api/jobs", altered)
    page.set_viewport_size({"width": 390, "height": 844})
    for jobs_shown in (6, 0):
        page.goto(f"{server.url}/statecore/")
        expect(page.locator("#jobs tr[data-job]")).to_have_count(jobs_shown)
        expect(page.locator("#jobs td").first).to_be_visible()
        sizes = page.locator(".scroll:has(table.jobs)").evaluate("each => [each.scrollWidth, each.clientWidth]")
        assert sizes[0] == sizes[1]


def test_who_may_rescale_a_job_but_not_change_it_is_offered_no_abort(page: Page, server: ApiServer) -> None:
    def as_reader(route: Route) -> None:
        # The simple auth manager, which the server has, knows no permissions per job.
        route.fulfill(json={**route.fetch().json(), "may_abort": False})

    page.route("**/api/job?*", as_reader)
    page.goto(f"{server.url}/statecore/job?name=payments")
    expect(page.locator("#condition")).to_have_text("rescaling")
    expect(page.get_by_role("button", name="Rescale…")).to_be_enabled()
    expect(page.get_by_role("button", name="Abort…")).to_have_count(0)


def test_a_user_aborts_the_run_that_is_changing_the_job(
    page: Page, server: ApiServer, browser: Browser, complaints: list[str]
) -> None:
    context = new_context(browser)
    looker = context.new_page()
    log_in(looker, server, "viewer", "/statecore/job?name=payments")
    expect(looker.locator("#condition")).to_have_text("rescaling")
    expect(looker.get_by_role("button", name="Abort…")).to_have_count(0)
    context.close()
    # Where nothing is changing the job, there is nothing to abort.
    page.goto(f"{server.url}{JOB}")
    expect(page.locator("#condition")).to_have_text("running")
    expect(page.get_by_role("button", name="Abort…")).to_have_count(0)
    page.goto(f"{server.url}/plugin/statecore/statecore/job?name=payments")
    frame = page.frame_locator("iframe")
    frame.get_by_role("button", name="Abort…").click()
    dialog = frame.get_by_role("dialog")
    expect(dialog).to_contain_text("Abort manual__payments")
    dialog.get_by_role("button", name="Abort and roll back").click()
    expect(frame.get_by_role("button", name="Aborting…")).to_be_disabled()
    expect(frame.locator("#advice")).to_contain_text("operator has aborted it, and it is being rolled back")
    assert [said for said in complaints if "abort" in said] == []


def test_in_airflows_frame_the_page_keeps_its_address_and_leads_out_to_the_run(page: Page, server: ApiServer) -> None:
    page.goto(f"{server.url}/plugin/statecore/statecore/job?name={FLIGHTS}")
    frame = page.frame_locator("iframe")
    expect(frame.locator("#condition")).to_have_text("running")
    expect(page.get_by_role("link", name="Streaming")).to_be_visible()
    # The frame itself may open no window.
    with page.context.expect_page() as opened:
        frame.get_by_role("link", name="Spark UI").click()
    opened.value.close()
    frame.get_by_role("link", name="manual__drain").first.click()
    page.wait_for_url(re.compile("/dags/rescale/runs/manual__drain"))


def test_without_its_catalog_the_page_says_so_and_keeps_what_it_showed(page: Page, server: ApiServer) -> None:
    page.goto(f"{server.url}/statecore/")
    expect(page.locator("#jobs tr[data-job]")).to_have_count(6)
    detail = "catalog postgresql://db: connection refused; expected a reachable database; check that it is up"
    page.route("**/api/jobs", lambda route: route.fulfill(status=503, json={"detail": detail}))
    expect(page.locator("#trouble")).to_contain_text(detail)
    expect(page.locator("#jobs tr[data-job]")).to_have_count(6)
    expect(page.locator("#freshness")).to_contain_text("as of")
    page.unroute("**/api/jobs")
    page.route("**/api/jobs", lambda route: route.abort())
    expect(page.locator("#trouble")).to_contain_text("cannot be reached")
    page.unroute("**/api/jobs")
    expect(page.locator("#trouble")).to_be_hidden()
    expect(page.locator("#freshness")).to_contain_text("live")


def test_the_end_of_a_drivers_log_can_be_read_of_every_generation(page: Page, server: ApiServer) -> None:
    page.goto(f"{server.url}{JOB}")
    page.get_by_role("link", name="Driver log").click()
    expect(page.locator("#text")).to_contain_text(f"INFO epoch 199: committed <{FLIGHTS}>")
    page.locator("#generation").select_option("1")
    expect(page.locator("#path")).to_contain_text(f"{FLIGHTS}-1.log")


def test_without_a_browser_it_is_said_which_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(FileNotFoundError, match=r"found none of chromium, .*; expected a browser .*apt-get install"),
        chromium(),
    ):
        pass
