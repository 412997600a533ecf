"""Whoever looks at a screen sees how far long work is; in a log, a line every ten seconds says it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from statecore.catalog import Catalog
from statecore.cli import copying, output
from statecore.cli.output import Report
from statecore.errors import StorageError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.job_definition import JobDefinition, write_definition
from statecore.storage import open_store
from tests.support.shell import committed, run
from tests.support.waiting import wait


@pytest.mark.parametrize("screen", [True, False])
def test_what_takes_long_shows_how_far_it_is(
    catalog: Catalog, savepoint: Path, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, screen: bool
) -> None:
    definition = JobDefinition(
        name="orders", artifact="/a", store="/s", master_url="local", cluster=None, conf={}, settings={}, parallelism=2,
        max_parallelism=16,
    )  # fmt: skip
    write_definition(store.files, definition)
    if screen:
        # Rich takes it for a terminal.
        monkeypatch.setenv("FORCE_COLOR", "1")
    for command, doing, of in (
        (["savepoint", "verify", savepoint], "checking files", "5/5"),
        (["plan", savepoint, "--parallelism", "4"], "counting rows", "2/2"),
        (["catalog", "rebuild", store.files.url], "reading savepoints", "1/1"),
        (["savepoint", "drop", savepoint], "removing files", ""),
    ):
        done = run(*command)
        assert done.returncode == 0, done
        assert (doing in done.stderr, of in done.stderr) == (screen, screen or not of), done.stderr


def test_in_a_log_a_line_now_and_then_says_what_is_being_done_how_far_and_for_how_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "LINE_S", 0.01)
    lines: list[str] = []

    def has(part: str) -> bool:
        lines.extend(capsys.readouterr().err.splitlines())
        return any(part in line for line in lines)

    with output.telling("orders: restart (4 of 5)", 21_000) as tell:
        wait(lambda: has("orders: restart (4 of 5), 0 s of usually 21 s"), "a line")
        tell("no generation after 3")
        wait(lambda: has("orders: restart (4 of 5): no generation after 3, "), "a line that says how far")
    with output.progress("checking files") as report:
        report(1_200, 3_400)
        wait(lambda: has("checking files: 1,200 of 3,400, "), "a line that counts")


def test_a_copy_is_watched_where_it_arrives(
    store: CheckpointStore, savepoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[tuple[int, int]] = []

    @contextmanager
    def recorded(_doing: str) -> Iterator[Report]:
        yield lambda done, total: reports.append((done, total))

    monkeypatch.setattr(copying, "progress", recorded)
    monkeypatch.setattr(copying, "_POLL_S", 0.01)
    target = CheckpointStore.at(str(tmp_path / "copy"))
    files = [ref for ref in committed(store, epoch=8).files() if ref.path.startswith("state/")]
    path = "savepoints/before-outage/manifest.json"
    with copying.watched(store, path, target.files.url):
        for ref in files:
            target.write_file(ref.path, store.read_file(ref))
            seen = sum(each.size for each in files[: files.index(ref) + 1])
            wait(lambda seen=seen: any(done == seen for done, _ in reports), "the report")  # type: ignore[misc]
    assert {total for _, total in reports} == {sum(ref.size for ref in files)}


def test_a_copy_to_a_folder_of_another_host_has_no_progress_rather_than_none_done(
    store: CheckpointStore, savepoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, report = Mock(wraps=open_store), Mock()
    monkeypatch.setattr(copying, "progress", lambda _doing: nullcontext(report))
    monkeypatch.setattr(copying, "open_store", looks)
    monkeypatch.setattr(copying, "_POLL_S", 0.01)
    with copying.watched(store, "savepoints/before-outage/manifest.json", str(tmp_path / "only" / "there")):
        wait(lambda: looks.call_count > 1, "a second look")
    report.assert_not_called()


def test_a_copy_to_where_this_machine_cannot_look_goes_on_unseen(
    store: CheckpointStore, savepoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Mock(side_effect=StorageError("found no way to the bucket; expected to list it; copy from another host"))
    report = Mock()
    monkeypatch.setattr(copying, "progress", lambda _doing: nullcontext(report))
    monkeypatch.setattr(copying, "open_store", refused)
    monkeypatch.setattr(copying, "_POLL_S", 0.01)
    with copying.watched(store, "savepoints/before-outage/manifest.json", "s3://elsewhere/copy"):
        # The first refusal has not ended the thread that looks.
        wait(lambda: refused.call_count > 1, "a second look")
    report.assert_not_called()
