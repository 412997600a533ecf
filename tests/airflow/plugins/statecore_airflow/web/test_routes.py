"""The routes of the web pages, requested through Airflow's own app: permissions, answers and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from statecore.catalog import Catalog, DataflowNode, DataflowRecord, EpochRecord, SourceBacklog, SystemClock
from statecore.operations.status.finding import Alert
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.plan import plan_rescale
from tests.support.paths import REPO
from tests.support.supervised import supervise
from tests.web.story import (
    DOWNTIME_MS,
    FLIGHTS,
    KNOWN_TAIL,
    MAX_PARALLELISM,
    REASON,
    REFUSED,
    Story,
    rows_of_key_groups,
)

HTML = {"Accept": "text/html"}
ABORT = "/statecore/api/abort"
POLICY = "/statecore/api/policy"
STATE = "/statecore/api/state"
PARAMETERS: dict[str, Any] = {
    "name": FLIGHTS,
    "parallelism": 8,
    "artifact": "/jobs/new.py",
    "lineage": 1,
    "epoch": 300,
    "key": "k1",
}


@dataclass(frozen=True, slots=True)
class Told:
    """URL of a catalog with a history."""

    url: str
    folder: Path


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("story")
    url = f"sqlite:///{folder / 'catalog.db'}"
    Story(url, folder).tell()
    return Told(url, folder)


@pytest.fixture(scope="session")
def airflow_app(airflow_db: Path) -> Any:
    """Airflow's app as its API server runs it, plugins included."""
    from airflow.api_fastapi.app import create_app

    return create_app(apps="core")


class Visitor:
    """Send requests as a user of a role; None is a user without a login."""

    def __init__(self, app: Any) -> None:
        from starlette.testclient import TestClient

        self._http = TestClient(app, follow_redirects=False, raise_server_exceptions=False)

    def get(self, route: str, role: str | None = "viewer", accept: dict[str, str] | None = None, **query: Any) -> Any:
        return self._http.get(route, params=query, headers={**(accept or {}), **_login(role)})

    def post(self, route: str, role: str | None, body: bytes, **headers: str) -> Any:
        return self._http.post(route, content=body, headers={**headers, **_login(role)})

    def ask(self, route: str, role: str | None = "viewer", **query: Any) -> Any:
        response = self.get(f"/statecore/api/{route}", role, **query)
        assert response.status_code == 200, response.text
        return response.json()


def _login(role: str | None) -> dict[str, str]:
    if role is None:
        return {}
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    user = SimpleAuthManagerUser(username=f"a_{role}", role=None if role == "stranger" else role)
    return {"Cookie": f"_token={get_auth_manager().generate_jwt(user)}"}


@pytest.fixture
def visitor(airflow_app: Any, told: Told, monkeypatch: pytest.MonkeyPatch) -> Visitor:
    _connect(monkeypatch, told.url)
    monkeypatch.setenv("AIRFLOW__STATECORE__LOGS_FOLDER", str(told.folder))
    return Visitor(airflow_app)


@pytest.fixture
def flights(told: Told) -> Iterator[Catalog]:
    with Catalog(told.url) as catalog:
        newest = catalog.generations.newest(FLIGHTS)
        assert newest is not None
        catalog.generations.heartbeat(FLIGHTS, newest.generation)
        supervise(catalog)
        yield catalog


def _connect(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    connection = {"conn_type": "generic", "extra": {"url": url}}
    monkeypatch.setenv("AIRFLOW_CONN_STATECORE_CATALOG", json.dumps(connection))


def _routes(app: Any) -> list[Any]:
    (mounted,) = [route for route in app.routes if getattr(route, "path", "") == "/statecore"]
    return list(mounted.app.routes)


def _path(route: Any) -> str:
    return "/statecore" + route.path.replace("{name}", "style.css")


def test_no_route_shows_anything_without_login_or_permission(airflow_app: Any, visitor: Visitor) -> None:
    from fastapi.routing import APIRoute

    routes = _routes(airflow_app)
    assert len(routes) > 8
    for route in routes:
        # A mounted app, such as one for static files, would bypass the permission check.
        assert isinstance(route, APIRoute), route
        path = _path(route)
        if path in (ABORT, POLICY, STATE):
            continue
        assert visitor.get(path, role=None, **PARAMETERS).status_code == 401, path
        assert visitor.get(path, role="stranger", **PARAMETERS).status_code == 403, path
        sent = visitor.get(path, role=None, accept=HTML, **PARAMETERS)
        assert sent.status_code == 307 and sent.headers["location"].startswith("/auth/login?next="), path
        as_user = visitor.get(path, role="user", **PARAMETERS)
        assert as_user.status_code == 200, (path, as_user.text)
        expected = 403 if path.startswith("/statecore/api/plan") else 200
        assert visitor.get(path, role="viewer", **PARAMETERS).status_code == expected, path


def test_with_permissions_per_job_a_user_sees_the_jobs_that_airflow_says(
    airflow_app: Any, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.app import get_auth_manager

    def may(*, method: str, resource_name: str, user: Any) -> bool:
        return (method, resource_name, user.username) == ("GET", f"Streaming job {FLIGHTS}", "a_user")

    # The simple auth manager gives every view to everyone; others know roles of resources.
    monkeypatch.setattr(get_auth_manager(), "is_authorized_custom_view", may)
    everything = {job["name"] for job in visitor.ask("jobs", role="user")["jobs"]}
    monkeypatch.setenv("AIRFLOW__STATECORE__PERMISSIONS_PER_JOB", "True")
    assert [job["name"] for job in visitor.ask("jobs", role="user")["jobs"]] == [FLIGHTS] and len(everything) > 1
    assert visitor.ask("jobs", role="viewer")["jobs"] == []
    of_one_job = [
        route
        for route in _routes(airflow_app)
        if "GET" in route.methods and "name" in {each.name for each in _query(route.dependant)}
    ]
    assert len(of_one_job) >= 5
    for route in of_one_job:
        assert visitor.get(_path(route), role="user", **PARAMETERS).status_code == 200, route.path
        for other in everything - {FLIGHTS} | {"nobody's"}:
            refused = visitor.get(_path(route), role="user", **{**PARAMETERS, "name": other})
            assert refused.status_code == 403, (route.path, other)
    for other in everything - {FLIGHTS}:
        body = json.dumps({"key": KNOWN_TAIL}).encode()
        refused = visitor.post(f"{STATE}?name={other}", "user", body, **{"Content-Type": "application/json"})
        assert refused.status_code == 403, other


@pytest.mark.parametrize(("allowed", "status"), [({"GET"}, 403), ({"GET", "PUT"}, 404)])
def test_with_permissions_per_job_who_may_only_read_a_job_aborts_none_of_its_runs_and_is_told_so(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch, allowed: set[str], status: int
) -> None:
    from airflow.api_fastapi.app import get_auth_manager

    def may(*, method: str, resource_name: str, user: Any) -> bool:
        return method in allowed and resource_name == f"Streaming job {FLIGHTS}"

    monkeypatch.setattr(get_auth_manager(), "is_authorized_custom_view", may)
    monkeypatch.setenv("AIRFLOW__STATECORE__PERMISSIONS_PER_JOB", "True")
    body = json.dumps({"name": FLIGHTS, "run_id": "of nobody"}).encode()
    answer = visitor.post(ABORT, "user", body, **{"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    found = visitor.ask("job", role="user", name=FLIGHTS)
    assert ("rescale" in found["triggerable"], found["may_abort"]) == (True, "PUT" in allowed)
    assert found["may_set_policy"] == ("PUT" in allowed)
    on = json.dumps({"name": FLIGHTS, "enabled": True}).encode()
    answer = visitor.post(POLICY, "user", on, **{"Content-Type": "application/json"})
    assert answer.status_code == (200 if "PUT" in allowed else 403), answer.text
    assert not visitor.ask("job", role="viewer", name=FLIGHTS)["may_abort"]


def _query(dependant: Any) -> list[Any]:
    return [*dependant.query_params, *(each for inner in dependant.dependencies for each in _query(inner))]


def test_two_routes_change_something_and_one_has_its_question_in_the_body(airflow_app: Any) -> None:
    others = {(_path(route), *route.methods) for route in _routes(airflow_app) if route.methods != {"GET"}}
    assert others == {(ABORT, "POST"), (POLICY, "POST"), (STATE, "POST")}


def test_a_policy_is_switched_by_who_may_trigger_autoscale_and_by_no_other_site(
    airflow_app: Any, catalog: Catalog, job: str
) -> None:
    visitor = Visitor(airflow_app)
    catalog.policies.set(job, {"max_parallelism": 8})
    off = json.dumps({"name": job, "enabled": False}).encode()
    json_type = {"Content-Type": "application/json"}
    for role, status in ((None, 401), ("stranger", 403), ("viewer", 403)):
        assert visitor.post(POLICY, role, off, **json_type).status_code == status, role
    assert visitor.post(POLICY, "user", off).status_code == 415
    assert visitor.post(POLICY, "user", off, **json_type, **{"Sec-Fetch-Site": "cross-site"}).status_code == 403
    policy = catalog.policies.find(job)
    assert policy is not None and policy.enabled
    assert visitor.post(POLICY, "user", off, **json_type).status_code == 200
    policy = catalog.policies.find(job)
    assert policy is not None and (policy.enabled, policy.settings) == (False, {"max_parallelism": 8})
    line = visitor.ask("definition", name=job)["audit"][0]
    assert (line["on_behalf_of"], line["change"]) == ("a_user (Airflow)", {"policy": ["on", "off"]})
    catalog.jobs.register("bare", artifact="a", store="/s", master_url="local", parallelism=1, max_parallelism=8)
    none = json.dumps({"name": "bare", "enabled": True}).encode()
    assert visitor.post(POLICY, "user", none, **json_type).status_code == 404


def test_a_run_is_aborted_by_who_may_trigger_it_and_by_no_other_site(
    airflow_app: Any, catalog: Catalog, job: str
) -> None:
    visitor = Visitor(airflow_app)
    catalog.runs.start("manual__before", job, from_parallelism=2, to_parallelism=4)
    catalog.runs.finish("manual__before")
    catalog.leases.acquire(job, "manual__now", 60_000)
    catalog.runs.start("manual__now", job, from_parallelism=4, to_parallelism=8)
    body = json.dumps({"name": job, "run_id": "manual__now"}).encode()
    json_type = {"Content-Type": "application/json"}
    for role, status in ((None, 401), ("stranger", 403), ("viewer", 403)):
        assert visitor.post(ABORT, role, body, **json_type).status_code == status, role
    # What a form of another site can send.
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert visitor.post(ABORT, "user", body, **{"Content-Type": kind}).status_code == 415, kind
    assert visitor.post(ABORT, "user", body).status_code == 415
    for site in ("cross-site", "same-site"):
        refused = visitor.post(ABORT, "user", body, **json_type, **{"Sec-Fetch-Site": site})
        assert refused.status_code == 403 and "another site" in refused.json()["detail"]
    # What the page showed before the run that changes the job now.
    stale = json.dumps({"name": job, "run_id": "manual__before"}).encode()
    refused = visitor.post(ABORT, "user", stale, **json_type)
    assert refused.status_code == 404 and "found run 'manual__now' changing job" in refused.json()["detail"]
    assert catalog.runs.get("manual__now").aborted_by is None
    answer = visitor.post(ABORT, "user", body, **json_type, **{"Sec-Fetch-Site": "same-origin"})
    assert (answer.status_code, answer.json()["aborted_by"]) == (200, "a_user"), answer.text
    assert catalog.runs.get("manual__now").aborted_by == "a_user"
    assert visitor.ask("job", name=job)["rescales"][0]["aborted_by"] == "a_user"


def test_every_answer_keeps_other_sites_and_their_scripts_out(airflow_app: Any, visitor: Visitor) -> None:
    for route in _routes(airflow_app):
        for role in ("user", "stranger"):
            headers = visitor.get(_path(route), role=role, **PARAMETERS).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "script-src 'self';" in policy
            assert "frame-ancestors 'self'" in policy and "unsafe-eval" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert "cache-control" in headers


def test_the_pages_load_nothing_from_elsewhere_and_hold_no_script_of_their_own() -> None:
    web = REPO / "plugins" / "statecore_airflow" / "web"
    for page in web.glob("pages/*.html"):
        text = page.read_text()
        assert not re.search(r"(src|href)=\"(https?:)?//|<style|\son\w+=|<script(?![^>]* src=)", text), page
        for asset in re.findall(r"static/([\w.-]+)", text):
            assert asset == "plotly.min.js" or (web / "static" / asset).is_file(), asset
    scripts = "".join(script.read_text() for script in web.glob("static/*.js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://", scripts)


def test_the_legend_of_epoch_durations_names_the_phases_that_are_drawn_in_their_order() -> None:
    web = REPO / "plugins" / "statecore_airflow" / "web"
    drawn = re.search(r"const PHASES = (\[.*\]);", (web / "static" / "charts.js").read_text())
    legend = re.findall(r"var\(--series-(\d)\)\"></span> (\w+)", (web / "pages" / "job.html").read_text())
    assert drawn is not None
    assert legend == [(str(place), phase) for place, phase in enumerate(json.loads(drawn[1]), 1)]


def test_airflow_shows_the_page_in_its_navigation(visitor: Visitor) -> None:
    (plugin,) = [each for each in visitor.get("/api/v2/plugins").json()["plugins"] if each["name"] == "statecore"]
    (view,) = plugin["external_views"]
    assert (view["href"], view["destination"], view["url_route"]) == ("/statecore/", "nav", "statecore")
    assert visitor.get(view["icon"]).headers["content-type"] == "image/svg+xml"


def test_jobs_that_need_somebody_come_first_and_each_says_what_to_do(visitor: Visitor, flights: Catalog) -> None:
    jobs = visitor.ask("jobs")["jobs"]
    assert [(job["name"], job["condition"]) for job in jobs] == [
        ("orders", "failed"),
        ("sessions", "lost"),
        ("payments", "rescaling"),
        (FLIGHTS, "running"),
        ("clicks", "stopped"),
        ("visits", "stopped"),
    ]
    found = {job["name"]: job["findings"] for job in jobs}
    # At first that one will be started, and after a minute that no supervisor does it.
    assert "db:5432 refusing" in jobs[0]["error"] and any("next driver" in str(each) for each in found["orders"])
    assert "no heartbeat" in jobs[1]["error"] and "supervisor" in found["sessions"][0]["todo"]
    assert found["payments"][-1] == {
        "found": "manual__payments is changing the job",
        "todo": (
            "leave it alone until that run has ended, or end and undo it with `statecore rescale payments --abort`"
        ),
        "alert": None,
        "severity": None,
        "is_new": False,
    }
    assert jobs[2]["lease"]["page"] == "dags/rescale/runs/manual__payments"
    told = jobs[3]
    assert (told["parallelism"], told["workers"]["ready"], told["savepoint"]["reason"]) == (4, 2, REASON)
    assert told["epoch"]["epoch"] > 100 and told["backlog"]["records"] < 20_000 and told["rows_per_second"] is not None


def test_each_alert_leads_to_an_entry_of_the_runbook(visitor: Visitor) -> None:
    page = visitor.get("/statecore/runbook").text
    assert set(Alert) <= set(re.findall(r'<h2 id="(\w+)">', page))
    assert "Two or more drivers failed in a row" in page
    # It is shown as written, and not as Markdown.
    assert "<strong>Critical.</strong>" in page and "<td>sink</td>" in page
    assert not re.search(r"\*\*|\]\(|`|\| ---", page)
    script = (REPO / "plugins/statecore_airflow/web/static/page.js").read_text()
    assert "runbook#${alert}" in script


def test_a_jobs_settings_which_may_hold_passwords_are_never_shown(airflow_app: Any, visitor: Visitor) -> None:
    for route in _routes(airflow_app):
        assert "never shown" not in visitor.get(_path(route), role="admin", **PARAMETERS).text


def test_a_jobs_page_knows_its_history_and_whether_who_looks_may_rescale(visitor: Visitor) -> None:
    found = visitor.ask("job", name=FLIGHTS)
    assert found["triggerable"] == []
    every = ["rescale", "start", "stop", "upgrade", "savepoints", "catch_up", "autoscale"]
    assert visitor.ask("job", role="user", name=FLIGHTS)["triggerable"] == every
    assert found["savepoints"][0]["bytes"] == 61_000_000 and found["savepoints"][0]["took_ms"] == 1_200
    newest = found["rescales"][0]
    assert (newest["run_id"], newest["state"], newest["reason"]) == ("manual__drain", "done", REASON)
    assert [step["name"] for step in newest["steps"]][:2] == ["grow_cluster", "stop_with_savepoint"]
    assert found["rescales"][1]["error"].startswith("found parallelism 512")
    assert [each["generation"] for each in found["generations"]] == [2, 1]
    assert [each["name"] for each in found["sources"]] == ["flights"]
    assert found["partitions_total"] == len(found["partitions"]) == 3
    most, *others = (each["records"] for each in found["partitions"])
    assert most > max(others) > 0
    assert found["policy"]["enabled"] and found["policy"]["finding"].endswith("enough")
    assert (found["policy"]["state"], found["policy"]["settings"]["max_parallelism"]) == ("on", 8)
    (decision,) = found["decisions"]
    assert (decision["to_parallelism"], decision["state"], decision["run_id"]) == (4, "refused", REFUSED)
    assert decision["page"] == f"dags/rescale/runs/{REFUSED}"


@pytest.mark.parametrize("minutes", [5, 15, 60, 1_440])
def test_a_series_has_no_more_points_than_a_screen_whatever_its_span(visitor: Visitor, minutes: int) -> None:
    series = visitor.ask("series", name=FLIGHTS, minutes=minutes)
    points = len(series["at_ms"])
    assert 15 <= points <= 180
    lists = ("rows_per_second", "backlog_records", "event_time_lag_ms", "epoch_ms", "parallelism")
    assert {len(series[each]) for each in lists} == {points}
    assert list(series["phases"]) == ["read", "transfer", "work", "commit", "publish"]
    for whole, *parts in zip(series["epoch_ms"], *series["phases"].values(), strict=True):
        assert parts == [None] * 5 if whole is None else sum(parts) == pytest.approx(whole)
    # From the beginning of a step to now, in the middle of another.
    assert minutes * 60_000 <= series["until_ms"] - series["since_ms"] <= minutes * 60_000 + 2 * series["step_ms"]


def test_a_series_tells_the_outage_the_backlog_and_the_rescale(visitor: Visitor) -> None:
    series = visitor.ask("series", name=FLIGHTS, minutes=60)
    rates, backlog = ([each or 0 for each in series[of]] for of in ("rows_per_second", "backlog_records"))
    assert 7_500 < max(rates) < 9_500 and 0.0 in rates
    # Alternating steps with and without an epoch would make a comb; only the rescale itself has a gap.
    drained = [rate for at_ms, rate in zip(series["at_ms"], rates, strict=True) if at_ms > series["until_ms"] - 780_000]
    while not drained[-1]:
        # The story ends where this test process told it, which may be a while ago.
        drained.pop()
    assert drained.count(0) <= 2 and max(drained[3:-20]) < 1.2 * min(drained[3:-20])
    assert max(backlog) > 5_000_000 and backlog[-1] < 20_000
    assert {2, 4} <= set(series["parallelism"])
    assert [(mark["kind"], mark["text"]) for mark in series["marks"]] == [
        ("rescale done", "2 → 4"),
        ("rescale failed", "2 → 512"),
        ("decision refused", "decided 4"),
    ]


def test_a_span_of_the_past_is_drawn_as_finely_as_it_is_known(visitor: Visitor, flights: Catalog) -> None:
    now_ms = visitor.ask("series", name=FLIGHTS)["now_ms"]
    past = visitor.ask("series", name=FLIGHTS, minutes=10, until_ms=now_ms - 20 * 60_000)
    assert past["until_ms"] == now_ms - 20 * 60_000
    assert past["step_ms"] < 60_000 and len(past["at_ms"]) >= 15
    assert past["at_ms"][-1] < past["until_ms"] and past["at_ms"][0] >= past["until_ms"] - 11 * 60_000
    assert max(rate or 0 for rate in past["rows_per_second"]) > 3_000
    # Of three days ago only quarters of an hour are known.
    long_ago = visitor.ask("series", name=FLIGHTS, minutes=60, until_ms=now_ms - 3 * 86_400_000)
    assert long_ago["step_ms"] == 900_000
    # The end is drawn, too: only what has not ended yet is left out.
    short = visitor.ask("series", name=FLIGHTS, minutes=10, until_ms=now_ms - 3 * 86_400_000)
    assert short["at_ms"] and short["at_ms"][-1] + short["step_ms"] >= short["until_ms"]
    assert [
        mark["text"] for mark in visitor.ask("series", name=FLIGHTS, minutes=30, until_ms=now_ms - 30 * 60_000)["marks"]
    ] == ["2 → 512"]
    ahead = visitor.ask("series", name=FLIGHTS, minutes=10, until_ms=now_ms + 3_600_000)
    assert ahead["until_ms"] <= ahead["now_ms"]


def test_a_decision_that_was_only_observed_is_marked_as_what_would_be(catalog: Catalog, job: str) -> None:
    from statecore_airflow.web.charts import _marks

    change: dict[str, Any] = {"from_parallelism": 2, "to_parallelism": 4, "from_workers": None, "to_workers": None}
    seen = catalog.policies.set(job, {"max_parallelism": 8})
    catalog.policies.record_decision(seen, {}, **change, method="live", reason="r", figures={}, state="observed")
    assert [(mark.kind, mark.text) for mark in _marks(catalog, job, 0, catalog.now_ms())] == [
        ("decision observed", "would take 4")
    ]


def test_a_policy_that_observes_is_told_as_such(catalog: Catalog, job: str) -> None:
    from statecore_airflow.web.jobs import get_job

    catalog.policies.set(job, {"max_parallelism": 8, "observe": True})
    policy = get_job(job, catalog, [], lambda _: False).policy
    assert policy is not None and (policy.enabled, policy.state) == (True, "observes")


def test_the_dataflow_comes_with_what_arrives_what_is_read_and_who_is_busiest(
    visitor: Visitor, flights: Catalog
) -> None:
    found = visitor.ask("dataflow", name=FLIGHTS)
    nodes = {each["name"]: each for each in found["nodes"]}
    assert list(nodes) == ["flights", "rules", "by_tail", "alerts", "late"]
    source = nodes["flights"]
    assert source["rows_in"] == pytest.approx(2_000, rel=0.1) and source["rows_out"] == pytest.approx(2_000, rel=0.1)
    assert source["backlog"]["records"] == 0
    assert nodes["by_tail"]["inputs"] == [["source", "flights"], ["source", "rules"]]
    work = nodes["by_tail"]["work"]
    assert (work["subtasks"], work["busiest"]) == (4, 0) and work["busy_ratio"] > 1.1
    assert nodes["alerts"]["rows_out"] > 0 and nodes["alerts"]["took_ms"] > 0
    assert nodes["late"]["rows_out"] == 0 and nodes["late"]["took_ms"] is None
    assert found["drained_in_ms"] == 0 and found["growth"] == pytest.approx(0, abs=300)
    newest = flights.epochs.of(FLIGHTS, limit=1)[0]
    assert len(found["epochs"]) == 50 and found["epochs"][0]["epoch"] == newest.epoch
    phases = found["epochs"][0]["phases"]
    assert sum(phases[each] for each in ("read", "transfer", "work")) == pytest.approx(newest.phases["run"])
    (operator,) = visitor.ask("subtasks", name=FLIGHTS, lineage=1, epoch=newest.epoch)["operators"]
    assert (operator["uid"], [each["subtask"] for each in operator["subtasks"]]) == ("by_tail", [0, 1, 2, 3])
    none = visitor.get("/statecore/api/subtasks", name=FLIGHTS, lineage=7, epoch=1)
    assert none.status_code == 404 and "expected one of the newest thousand" in none.json()["detail"]
    of_nothing = visitor.ask("dataflow", name="sessions")
    assert (of_nothing["nodes"], of_nothing["epochs"], of_nothing["drained_in_ms"]) == ([], [], None)


def test_without_a_driver_nothing_is_read_whatever_its_last_epochs_did(catalog: Catalog, job: str) -> None:
    from statecore_airflow.web.dataflow import get_dataflow

    number = catalog.generations.claim(job, log_path="/l").generation
    catalog.generations.heartbeat(job, number)
    catalog.epochs.record_dataflow(DataflowRecord(job, number, (DataflowNode("source", "in", "kafka"),)))
    now_ms = catalog.now_ms()
    for n in range(5):
        at_ms, waits = now_ms - 5_000 + n * 1_000, (SourceBacklog("in", records=900 - 100 * n),)
        made = EpochRecord(job, 1, n, number, 2, 200, 0, at_ms - 9, at_ms, 9, backlog=waits, source_rows={"in": 200})
        catalog.epochs.record(made)
    found = get_dataflow(job, catalog)
    assert (found.nodes[0].rows_in, found.nodes[0].rows_out) == (100, 200)
    assert (found.growth, found.drained_in_ms) == (-100, 5_000)
    # What the supervisor has measured since counts, not what the last epoch left.
    catalog.epochs.record_backlog(job, number, [SourceBacklog("in", records=9_000)])
    assert get_dataflow(job, catalog).drained_in_ms == 90_000
    catalog.generations.end(job, number, state="failed", error="away")
    found = get_dataflow(job, catalog)
    assert (found.nodes[0].rows_out, found.growth, found.drained_in_ms) == (None, None, None)


def test_sparks_own_pages_are_linked_while_the_driver_runs_and_only_on_the_web(catalog: Catalog, job: str) -> None:
    from statecore_airflow.web.jobs import get_job

    def linked() -> str | None:
        return get_job(job, catalog, [], lambda _: False).ui_url

    for url in ("http://driver:4040", "javascript:alert(1)", "http://[", None):
        number = catalog.generations.claim(job, log_path="/l").generation
        catalog.generations.heartbeat(job, number)
        assert linked() is None  # of the driver before
        catalog.epochs.record_dataflow(DataflowRecord(job, number, (), url))
        assert linked() == (url if url == "http://driver:4040" else None)
        catalog.generations.end(job, number, state="stopped")
        assert linked() is None


def test_how_a_job_is_registered_is_shown_without_its_secrets(catalog: Catalog, job: str, visitor: Visitor) -> None:
    found = visitor.ask("definition", name=FLIGHTS)
    assert found["settings"] == {"password": "***"}
    assert found["registered"]["Job file"] == f"/jobs/{FLIGHTS}.py"
    assert found["audit"][0]["change"]["parallelism"] == [2, 4]


def test_the_audit_and_plans_hide_what_is_secret_in_an_address(airflow_app: Any, catalog: Catalog, job: str) -> None:
    visitor, address = Visitor(airflow_app), "https://user:hidden-token@git/job.py"
    catalog.jobs.set_desired(job, artifact=address, artifact_sha256="0" * 64)
    asked = {"name": job, "artifact": "https://user:hidden-token@git/new.py"}
    for route, role in (("definition", "viewer"), ("plan/upgrade", "user")):
        text = json.dumps(visitor.ask(route, role=role, **asked))
        assert "//git/job.py" in text and "hidden-token" not in text


def test_what_a_change_will_do_is_said_before_and_why_it_would_be_refused(visitor: Visitor, flights: Catalog) -> None:
    def plan(dag: str, name: str = FLIGHTS, **query: Any) -> tuple[str, str | None]:
        found = visitor.ask(f"plan/{dag}", role="user", name=name, **query)
        return " ".join(found["lines"]), found["refusal"]

    said, refusal = plan("stop")
    assert "writes a savepoint, and ends" in said and refusal is None
    assert plan("stop", "clicks")[0] == "The job is stopped already; a stop changes nothing."
    said, refusal = plan("start", "clicks", parallelism=4)
    assert "at parallelism 4" in said and refusal is None
    assert "max parallelism 128" in str(plan("start", "clicks", parallelism=129)[1])
    assert "found job 'flight_delays' running at parallelism 4" in str(plan("start", parallelism=9)[1])
    assert plan("savepoints")[1] is None
    assert "found no live driver of job 'clicks'" in str(plan("savepoints", "clicks")[1])
    said, refusal = plan("catch_up")
    assert said.startswith("Now: parallelism 4") and "To drain with: parallelism" in said and refusal is None
    # As the rescale that it triggers would be refused.
    assert "max parallelism 128" in str(plan("catch_up", parallelism=129)[1])
    assert "found 3 workers asked for job 'sessions'" in str(plan("catch_up", "sessions", workers=3)[1])
    assert plan("stop", "orders")[0].startswith("No driver is alive.")
    assert "is to run already" in plan("start")[0]
    said, refusal = plan("upgrade", artifact="/jobs/new.py")
    assert f"Now the job runs /jobs/{FLIGHTS}.py." in said and refusal is None
    assert "expected an absolute path or a URL" in str(plan("upgrade", artifact="new.py")[1])
    assert "found job 'clicks' stopped" in str(plan("upgrade", "clicks", artifact="/jobs/new.py")[1])
    # Another run changes this one.
    for dag in ("stop", "start", "catch_up", "upgrade"):
        assert "manual__payments" in str(plan(dag, "payments", artifact="/new.py")[1]), dag


def test_rows_per_key_group_come_with_the_borders_of_the_subtasks(visitor: Visitor) -> None:
    (spread,) = visitor.ask("key-groups", name=FLIGHTS)["operators"]
    rows = rows_of_key_groups()
    assert (spread["rows"], spread["groups_per_bin"]) == (list(rows), 1)
    assert spread["borders"] == [32, 64, 96]
    assert spread["rows_of_subtasks"] == [sum(rows[first : first + 32]) for first in (0, 32, 64, 96)]
    assert spread["skew"] == pytest.approx(max(spread["rows_of_subtasks"]) * 4 / sum(rows))


def test_many_key_groups_are_laid_together_until_a_screen_can_show_them() -> None:
    from statecore_airflow.web.charts import _spread

    from statecore.catalog import KeyGroupsRecord, OperatorFigures

    groups = 32_768
    sample = KeyGroupsRecord("job", 1, 1, "sums", 0, (1,) * groups, (1,) * groups)
    owned = OperatorFigures("sums", (0,) * 3, (0,) * 3, (0,) * 3, (0,) * 3, (0,) * 3, (10_923, 10_923, 10_922))
    spread = _spread(sample, owned)
    assert (len(spread.rows), spread.groups_per_bin, sum(spread.rows)) == (512, 64, groups)
    assert (spread.borders, spread.rows_of_subtasks) == ([10_923, 21_846], [10_923, 10_923, 10_922])


def test_a_plan_is_that_of_the_newest_epoch_with_the_downtime_of_earlier_rescales(
    visitor: Visitor, told: Told, flights: Catalog
) -> None:
    found = visitor.ask("plan", role="user", name=FLIGHTS, parallelism=8, method="by_reference")
    store = CheckpointStore.at(str(told.folder / FLIGHTS))
    manifest = store.newest()
    assert manifest is not None
    plan = plan_rescale(store, manifest, 8)
    shown = [(each["key_groups"], each["files"], each["rows"], each["bytes"]) for each in found["subtasks"]]
    assert shown == [(list(each.key_groups), each.files, each.rows, each.bytes) for each in plan.subtasks]
    assert (found["rows"], found["skew"], found["bytes_written"]) == (plan.rows, plan.skew, 0)
    assert [(each["uid"], each["rows"], each["bytes"]) for each in found["operators"]] == [
        (each.uid, each.rows, each.bytes) for each in plan.operators
    ]
    assert found["downtime"] == {
        "median_ms": DOWNTIME_MS,
        "shortest_ms": 27_500,
        "longest_ms": 31_000,
        "runs": 3,
    }
    assert found["refusal"] is None


def test_a_plan_that_would_be_refused_says_why(visitor: Visitor, flights: Catalog) -> None:
    flights.leases.acquire(FLIGHTS, "manual__other", 60_000)
    try:
        refusal = visitor.ask("plan", role="user", name=FLIGHTS, parallelism=8)["refusal"]
    finally:
        flights.leases.release(FLIGHTS, "manual__other")
    assert "manual__other" in refusal
    # The message of the DAG's first step.
    other = visitor.ask("plan", role="user", name=FLIGHTS, parallelism=4, max_parallelism=256)["refusal"]
    assert "256 with the method auto" in other

    def asked(**query: Any) -> tuple[int, str]:
        response = visitor.get("/statecore/api/plan", role="user", **{"name": FLIGHTS, **query})
        return response.status_code, response.json()["detail"]

    code, detail = asked(parallelism=MAX_PARALLELISM + 1)
    assert code == 422 and "129" in detail
    code, detail = asked(name="clicks", parallelism=4)
    assert code == 409 and "no committed epoch" in detail
    code, detail = asked(name="nobody's", parallelism=4)
    assert code == 404 and "known jobs" in detail
    assert visitor.ask("plan", role="user", name=FLIGHTS, parallelism=4, method="rewrite", max_parallelism=256)[
        "bytes_written"
    ]


def test_a_log_is_the_one_that_the_catalog_names_whatever_is_asked_for(visitor: Visitor, told: Told) -> None:
    first = visitor.ask("log", name=FLIGHTS, generation=1, path="/etc/passwd", log_path="/etc/passwd")
    assert first["path"] == str(told.folder / f"{FLIGHTS}-1.log")
    assert first["text"].startswith("INFO epoch 0") and first["generations"] == [2, 1]
    assert visitor.ask("log", name=FLIGHTS)["generation"] == 2
    for path in ("/statecore/static/..%2Fpages%2Fjobs.html", "/statecore/static/%2Fetc%2Fpasswd"):
        assert visitor.get(path).status_code == 404
    unknown = visitor.get("/statecore/api/log", name=FLIGHTS, generation=9)
    assert unknown.status_code == 404 and "generation 9" in unknown.json()["detail"]


def test_no_file_outside_the_folder_of_the_logs_is_shown_not_even_by_a_link(
    visitor: Visitor, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, secret = tmp_path / "logs", tmp_path / "secret"
    logs.mkdir()
    secret.write_text("hunter2")
    (logs / "link.log").symlink_to(secret)
    (logs / "o-4.log").write_text("inside")
    monkeypatch.setenv("AIRFLOW__STATECORE__LOGS_FOLDER", str(logs))
    _connect(monkeypatch, url := f"sqlite:///{tmp_path}/catalog.db")
    with Catalog(url) as catalog:
        catalog.create_schema()
        catalog.jobs.register("o", artifact="/a", store="/s", master_url="local[2]", parallelism=1, max_parallelism=1)
        for path in (secret, logs / "link.log", logs / ".." / "secret"):
            generation = catalog.generations.claim("o", log_path=str(path)).generation
            catalog.generations.end("o", generation, state="stopped")
            refused = visitor.get("/statecore/api/log", name="o")
            assert refused.status_code == 409 and "hunter2" not in refused.text, path
            assert f"expected it below {logs.resolve()}" in refused.json()["detail"]
        catalog.generations.claim("o", log_path=f"{logs}/o-4.log")
        assert visitor.ask("log", name="o")["text"] == "inside"
    monkeypatch.delenv("AIRFLOW__STATECORE__LOGS_FOLDER")
    unset = visitor.get("/statecore/api/log", name="o")
    assert unset.status_code == 503 and "found no setting logs_folder" in unset.json()["detail"]


def test_a_log_of_another_job_or_generation_is_not_shown(
    visitor: Visitor, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("payments-1.log", "o-1-1.log", "o-1.log"):
        (logs / name).write_text(f"card numbers of {name}")
    (logs / "o-4.log").symlink_to(logs / "payments-1.log")
    monkeypatch.setenv("AIRFLOW__STATECORE__LOGS_FOLDER", str(logs))
    _connect(monkeypatch, url := f"sqlite:///{tmp_path}/catalog.db")
    with Catalog(url) as catalog:
        catalog.create_schema()
        catalog.jobs.register("o", artifact="/a", store="/s", master_url="local[2]", parallelism=1, max_parallelism=1)
        for name in ("payments-1.log", "o-1-1.log", "o-1.log", "o-4.log"):
            generation = catalog.generations.claim("o", log_path=f"{logs}/{name}").generation
            catalog.generations.end("o", generation, state="stopped")
            refused = visitor.get("/statecore/api/log", name="o")
            assert refused.status_code == 409 and "card numbers" not in refused.text, name
            assert f"expected its own, o-{generation}.log" in refused.json()["detail"]


def test_a_log_is_shown_without_its_secrets(visitor: Visitor, told: Told) -> None:
    log = told.folder / f"{FLIGHTS}-2.log"
    before = log.read_text()
    try:
        log.write_text("connecting to postgresql://me:hun/ter2@db/x\n")
        assert visitor.ask("log", name=FLIGHTS)["text"] == "connecting to postgresql://db/x\n"
    finally:
        log.write_text(before)


def test_of_a_long_log_the_last_whole_lines_are_shown(visitor: Visitor, told: Told, flights: Catalog) -> None:
    log = told.folder / f"{FLIGHTS}-2.log"
    before = log.read_text()
    lines = [f"line {n} ü\n" for n in range(60_000)]
    log.write_text("".join(lines))
    try:
        found = visitor.ask("log", name=FLIGHTS)
        assert found["text"].startswith("line ") and found["text"].endswith("line 59999 ü\n")
        assert found["missing_bytes"] + len(found["text"].encode()) == log.stat().st_size
        log.unlink()
        missing = visitor.get("/statecore/api/log", name=FLIGHTS)
        assert missing.status_code == 409 and str(log) in missing.json()["detail"]
    finally:
        log.write_text(before)


def test_a_log_that_airflow_may_not_read_is_named(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("statecore_airflow.web.logs._tail", refuse)
    refused = visitor.get("/statecore/api/log", name=FLIGHTS)
    assert refused.status_code == 409 and "found an unreadable file " in refused.json()["detail"]


def test_without_its_catalog_the_page_is_there_and_says_what_is_wrong(
    visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _connect(monkeypatch, "postgresql+psycopg://statecore:s3cret@127.0.0.1:1/statecore")
    refused = visitor.get("/statecore/api/jobs")
    assert refused.status_code == 503
    assert "check that it is up" in refused.json()["detail"] and "s3cret" not in refused.text
    assert visitor.get("/statecore/", accept=HTML).status_code == 200
    _connect(monkeypatch, "mysql://statecore:s3cret@db/statecore")
    refused = visitor.get("/statecore/api/jobs")
    assert refused.status_code == 503 and "s3cret" not in refused.text
    monkeypatch.delenv("AIRFLOW_CONN_STATECORE_CATALOG")
    assert "found no Airflow connection" in visitor.get("/statecore/api/jobs").json()["detail"]


def test_a_lease_that_has_expired_does_not_count(visitor: Visitor, flights: Catalog) -> None:
    flights.leases.acquire(FLIGHTS, "manual__gone", 1)
    try:
        while SystemClock().now_ms() < flights.leases.find(FLIGHTS).expires_ms:  # type: ignore[union-attr]
            pass
        assert visitor.ask("job", name=FLIGHTS)["job"]["condition"] == "running"
    finally:
        flights.leases.release(FLIGHTS, "manual__gone")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ("manual__2026-11-21T16:33:59+00:00", "dags/rescale/runs/manual__2026-11-21T16%3A33%3A59%2B00%3A00"),
        ("upgrade:manual__2026-11-21T16:33:59+00:00", "dags/upgrade/runs/manual__2026-11-21T16%3A33%3A59%2B00%3A00"),
        ("manual__2026-11-21T16:33:59+00:00#2", "dags/rescale/runs/manual__2026-11-21T16%3A33%3A59%2B00%3A00"),
        ("stop:nightly#1", "dags/stop/runs/nightly"),
        ("shell-20261121-ab-ann@host", None),
    ],
)
def test_who_changes_a_job_is_linked_when_it_is_a_run_of_a_dag(change: str, path: str | None) -> None:
    from statecore_airflow.links.addresses import change_path

    assert change_path(change) == path


def test_what_a_key_has_is_shown_to_who_may_rescale(visitor: Visitor) -> None:
    json_type = {"Content-Type": "application/json"}

    def ask(body: dict[str, Any], role: str = "user", job: str = FLIGHTS) -> Any:
        return visitor.post(f"{STATE}?name={job}", role, json.dumps(body).encode(), **json_type)

    shown = ask({"key": KNOWN_TAIL}).json()
    assert (shown["uid"], shown["key"], shown["lineage"]) == ("by_tail", {"k": f'"{KNOWN_TAIL}"'}, 1)
    # As text: a browser would round it.
    assert [(each["state"], each["value"], each["left_out"]) for each in shown["contents"]] == [("total", "7", 0)]
    assert ask({"key": "nobody"}).json()["contents"] == []
    refused = ask({"key": KNOWN_TAIL, "uid": "by_nobody"})
    assert refused.status_code == 422 and "by_tail" in refused.json()["detail"], refused.text
    refused = ask({"key": KNOWN_TAIL}, job="clicks")
    assert refused.status_code == 422 and "found no committed epoch of clicks" in refused.json()["detail"]
    assert ask({"key": KNOWN_TAIL}, role="viewer").status_code == 403
    assert visitor.post(f"{STATE}?name={FLIGHTS}", "user", b"{}", **{"Content-Type": "text/plain"}).status_code == 415


def test_what_a_job_hides_is_not_on_its_page(airflow_app: Any, catalog: Catalog, job: str, told: Told) -> None:
    """In a catalog of its own, because others look at the story."""
    catalog.jobs.register(
        "hiding", artifact="/jobs/flights.py", store=str(told.folder / FLIGHTS), master_url="local[2]", parallelism=4,
        max_parallelism=MAX_PARALLELISM, conf={"statecore.state.hidden": "K,TOTAL"},
    )  # fmt: skip
    body = json.dumps({"key": KNOWN_TAIL}).encode()
    json_type = {"Content-Type": "application/json"}
    shown = Visitor(airflow_app).post(f"{STATE}?name=hiding", "user", body, **json_type)
    assert shown.json()["key"] == {"k": '"***"'} and shown.json()["contents"][0]["value"] == '"***"'
    assert KNOWN_TAIL not in shown.text


def test_a_third_look_up_at_once_waits_its_turn(visitor: Visitor) -> None:
    from statecore_airflow.web import state

    body = json.dumps({"key": KNOWN_TAIL}).encode()
    with state._slots, state._slots:
        refused = visitor.post(f"{STATE}?name={FLIGHTS}", "user", body, **{"Content-Type": "application/json"})
    assert refused.status_code == 503 and "try again" in refused.json()["detail"]
