"""The alert loop, with a real catalog and a real webhook."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.operations.status.alerts import RESOLVED_AFTER_MS
from statecore.operations.status.job_status import job_statuses
from statecore.operations.supervising import alert_loop, webhook
from statecore.operations.supervising.alert_loop import (
    CLAIM_MS,
    AlertLoop,
    claim,
    confirm,
    due_changes,
    webhook_sender,
)
from statecore.release import RELEASE
from tests.contracts.catalog.fixtures import ManualClock
from tests.support.waiting import PATIENCE_S, wait
from tests.support.webhook import Webhook


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def catalog(catalog_url: str, clock: ManualClock) -> Iterator[Catalog]:
    with Catalog(catalog_url, clock=clock) as opened:
        opened.jobs.register("orders", artifact="a", store="s", master_url="m", parallelism=2, max_parallelism=16)
        yield opened


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setattr(webhook, "_RETRY_PAUSE_S", 0.0)
    with Webhook() as receiver:
        monkeypatch.setenv("STATECORE_WEBHOOK", receiver.url)
        yield receiver


def crash(catalog: Catalog, job: str = "orders") -> None:
    """Have two drivers fail one after the other."""
    catalog.jobs.set_desired(job, state="running")
    for _ in range(2):
        claimed = catalog.generations.claim(job, log_path="/logs/{generation}.log")
        catalog.generations.end(job, claimed.generation, state="failed", error="ValueError: negative")


def heads(chat: Webhook) -> list[str]:
    """Return how each message begins."""
    return [" ".join(message["text"].split()[:4]) for message in chat.messages]


BEGUN, OVER = "CRITICAL crash_loop, job orders:", "RESOLVED crash_loop, job orders"


def test_each_change_is_told_once_also_after_a_restart(catalog: Catalog, clock: ManualClock, chat: Webhook) -> None:
    send = webhook_sender()
    first = AlertLoop(catalog, "supervisor", send)
    first.step()
    assert chat.messages == []
    crash(catalog)
    first.step()
    first.step()
    AlertLoop(catalog, "supervisor", send).step()
    assert [each for each in heads(chat) if "crash_loop" in each] == [BEGUN]
    assert any("2 drivers failed in a row" in message["text"] for message in chat.messages)
    catalog.jobs.set_desired("orders", state="stopped")
    first.step()
    assert [each for each in heads(chat) if "crash_loop" in each] == [BEGUN]
    clock.advance(RESOLVED_AFTER_MS)
    AlertLoop(catalog, "supervisor", send).step()
    first.step()
    assert [each for each in heads(chat) if "crash_loop" in each] == [BEGUN, OVER]
    crash(catalog)
    first.step()
    assert [each for each in heads(chat) if "crash_loop" in each] == [BEGUN, OVER, BEGUN]


def test_two_loops_at_once_tell_a_change_once(catalog: Catalog, catalog_url: str, clock, chat: Webhook) -> None:
    crash(catalog)
    send, together = webhook_sender(), threading.Barrier(2, timeout=PATIENCE_S)

    def look(_: int) -> None:
        with Catalog(catalog_url, clock=clock) as own:
            loop = AlertLoop(own, "supervisor", send)
            together.wait()
            loop.step()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(look, range(2)))
    assert [each for each in heads(chat) if "crash_loop" in each] == [BEGUN]


def test_a_message_that_was_not_accepted_is_logged_and_sent_again_later(
    catalog: Catalog, clock: ManualClock, chat: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    crash(catalog)
    loop = AlertLoop(catalog, "supervisor", webhook_sender())
    chat.answer = 503
    with caplog.at_level(logging.WARNING):
        loop.step()
    assert "found the status 503 when posting to the webhook of the variable STATECORE_WEBHOOK" in caplog.text
    assert "could not be sent" in caplog.text and "s3cret" not in caplog.text
    chat.answer, refused = 200, len(chat.messages)
    loop.step()
    assert len(chat.messages) == refused
    clock.advance(CLAIM_MS)
    loop.step()
    assert [each for each in heads(chat)[refused:] if "crash_loop" in each] == [BEGUN]
    clock.advance(CLAIM_MS)
    loop.step()
    assert len([each for each in heads(chat)[refused:] if "crash_loop" in each]) == 1


def test_the_address_is_not_left_to_the_code_of_jobs(chat: Webhook) -> None:
    webhook_sender()
    assert "STATECORE_WEBHOOK" not in os.environ


def test_without_a_webhook_an_alert_is_logged(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    crash(catalog)
    loop = AlertLoop(catalog, "supervisor", webhook_sender())
    with caplog.at_level(logging.WARNING):
        loop.step()
        loop.step()
    assert caplog.text.count("CRITICAL crash_loop, job orders: ValueError: negative (crash loop: 2 drivers failed") == 1


SUPERVISOR = """
import sys
from pathlib import Path
from statecore import supervisor
from statecore.operations.supervising import alert_loop
from statecore.operations.supervising import webhook

alert_loop.INTERVAL_S = 0.05
webhook._TIMEOUT_S = 3600
logs = Path(sys.argv[2])
command = f"env > {logs}/environment.part; mv {logs}/environment.part {logs}/environment; false"
supervisor.SparkSubmit = lambda _: lambda job, generation: ["sh", "-c", command]
supervisor.run_supervisor(sys.argv[1], logs, poll_interval_s=0.05)
"""


def test_a_webhook_that_hangs_delays_no_pass_of_the_supervisor_nor_its_end(catalog_url: str, tmp_path: Path) -> None:
    with Catalog(catalog_url) as catalog, socket.create_server(("127.0.0.1", 0)) as silent:
        catalog.jobs.register("orders", artifact="a", store="s", master_url="m", parallelism=2, max_parallelism=16)
        catalog.jobs.set_desired("orders", state="running")
        environment = {**os.environ, "STATECORE_WEBHOOK": f"http://127.0.0.1:{silent.getsockname()[1]}/s3cret"}
        running = subprocess.Popen([sys.executable, "-c", SUPERVISOR, catalog_url, str(tmp_path)], env=environment)
        try:
            # Accepted, and never answered.
            silent.settimeout(PATIENCE_S)
            hanging, _ = silent.accept()
            seen = catalog.generations.of("orders")[0].generation
            wait(lambda: catalog.generations.of("orders")[0].generation > seen, "the next driver")
            running.terminate()
            assert running.wait(PATIENCE_S) == 0
            hanging.close()
        finally:
            running.kill()
            running.wait()
    told = (tmp_path / "environment").read_text()
    assert "STATECORE_CATALOG=" in told and "STATECORE_WEBHOOK" not in told


def test_a_job_whose_records_are_damaged_hides_no_alert_of_another_and_is_not_resolved(
    catalog: Catalog, catalog_url: str, chat: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    crash(catalog)
    loop = AlertLoop(catalog, "supervisor", webhook_sender())
    loop.step()
    assert heads(chat) == [BEGUN]
    catalog.jobs.register("clicks", artifact="a", store="s", master_url="m", parallelism=2, max_parallelism=16)
    crash(catalog, "clicks")
    with closing(sqlite3.connect(catalog_url.removeprefix("sqlite:///"))) as database, database:
        database.execute("UPDATE generations SET state = 'damaged' WHERE job = 'orders'")
    loop.step()
    assert heads(chat) == [BEGUN, "CRITICAL crash_loop, job clicks:"]
    assert "how job 'orders' stands cannot be read" in caplog.text


def test_the_loop_outlives_a_catalog_that_was_away(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(alert_loop, "INTERVAL_S", 0.01)
    crash(catalog)
    away, told = threading.Event(), threading.Event()
    overviews = catalog.overviews.of

    def failing(names: object) -> object:
        if away.is_set():
            return overviews()
        raise OSError("gone")

    monkeypatch.setattr(catalog.overviews, "of", failing)
    loop = AlertLoop(catalog, "supervisor", lambda _: told.set())
    loop.start()
    try:
        wait(lambda: "alerts failed; retrying: gone" in caplog.text, "the error")
        away.set()
        wait(told.is_set, "the alert")
    finally:
        loop.stop()


def look(catalog: Catalog) -> list[str]:
    """Look once as Airflow does; return how the messages begin."""
    changes = due_changes(catalog, "airflow", job_statuses(catalog), catalog.supervisors.last())
    for change in changes:
        assert claim(catalog.alerts, "airflow", change, CLAIM_MS)
        confirm(catalog.alerts, "airflow", change)
    return [change.text.splitlines()[0] for change in changes]


def test_a_dead_supervisor_is_told_by_another_process_once_and_resolved_when_one_acts(
    catalog: Catalog, clock: ManualClock
) -> None:
    def beat() -> None:
        catalog.supervisors.lead("first", host="blue", pid=7, process_started_ms=0, version=RELEASE)

    assert look(catalog) == []
    beat()
    assert look(catalog) == []
    clock.advance(90_000)
    assert look(catalog) == [
        "CRITICAL supervisor_dead, all jobs: the last supervisor, process 7 on blue, was last heard of 1 min 30 s ago"
    ]
    assert look(catalog) == []
    clock.advance(30_000)
    beat()
    assert look(catalog) == []
    clock.advance(RESOLVED_AFTER_MS)
    assert look(catalog) == ["RESOLVED supervisor_dead, all jobs after 30 s"]
    assert look(catalog) == []


def test_a_supervisor_of_another_release_is_told_when_it_lasts_and_resolved_when_it_was_upgraded(
    catalog: Catalog, clock: ManualClock
) -> None:
    def beat(release: str) -> None:
        catalog.supervisors.lead("first", host="blue", pid=7, process_started_ms=0, version=release)

    for _ in range(2):
        beat("0.0.9")
        assert look(catalog) == []
        clock.advance(30 * 60_000)
    beat("0.0.9")
    assert look(catalog) == [
        f"WARNING releases_differ, all jobs: Airflow runs release {RELEASE} of statecore, the supervisor on blue runs "
        "0.0.9"
    ]
    assert look(catalog) == []
    beat(RELEASE)
    assert look(catalog) == []
    clock.advance(RESOLVED_AFTER_MS)
    beat(RELEASE)
    (over,) = look(catalog)
    assert over.startswith("RESOLVED releases_differ, all jobs")
