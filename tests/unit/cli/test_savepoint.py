"""``savepoint show``, ``verify`` and ``drop``: what needs no running job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.snapshot.checkpoints import CheckpointStore
from tests.support.handmade import manifest
from tests.support.paths import REPO
from tests.support.shell import LONG_POSITION, Done, assert_refused, run


def test_it_is_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "statecore", "savepoint", "show", "nowhere"],
        capture_output=True, text=True, cwd=REPO, timeout=120, check=False,
    )  # fmt: skip
    assert_refused(Done(done.returncode, done.stdout, done.stderr), REPO / "nowhere")
    assert done.stdout == ""


class TestSavepoint:
    def test_show_prints_what_it_holds(self, savepoint: Path) -> None:
        done = run("savepoint", "show", savepoint)
        assert (done.returncode, done.stderr) == (0, "")
        for part in ("before-outage", "storage is down", "orders", "1, 7", "2 of at most 16", "totals", "k string"):
            assert part in done.stdout
        assert "total (keyed value of bigint)" in done.stdout
        assert "waiting (operator list of bigint)" in done.stdout
        assert "0–7" in done.stdout
        assert "2023-11-14 22:13:20 UTC" in done.stdout
        assert "orders.py, " in done.stdout

    def test_show_prints_where_sources_stand_and_cuts_nothing_off(self, savepoint: Path) -> None:
        done = run("savepoint", "show", savepoint)
        assert "sources, as operator list state" in done.stdout
        assert LONG_POSITION in done.stdout

    def test_show_tells_programs_the_same(self, savepoint: Path) -> None:
        done = run("savepoint", "show", savepoint, "--json")
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
        facts = json.loads(done.stdout)
        assert facts["path"] == str(savepoint / "manifest.json")
        assert facts["savepoint"] == {"name": "before-outage", "reason": "storage is down", "created_ms": 0}
        assert (facts["job"], facts["lineage"], facts["epoch"], facts["rows_total"]) == ("orders", 1, 7, 30)
        assert (facts["parallelism"], facts["max_parallelism"]) == (2, 16)
        assert (facts["watermark_ms"], facts["artifact"]["name"]) == (1_700_000_000_000, "orders.py")
        assert [(each["name"], each["positions"]) for each in facts["sources"]] == [
            ("flights", [LONG_POSITION]), ("rules", []),
        ]  # fmt: skip
        (operator,) = facts["operators"]
        assert (operator["uid"], operator["key"]) == ("totals", [{"name": "k", "type": "string"}])
        shares = [(s["subtask"], s["state"], s["key_groups"], s["files"], s["rows"]) for s in operator["states"]]
        assert shares == [
            (0, "total", [[0, 7]], 1, 8),
            (0, "waiting", [], 1, 3),
            (1, "total", [[8, 15]], 1, 8),
            (1, "waiting", [], 1, 3),
        ]
        assert facts["files"] == 5
        assert facts["bytes"] > sum(s["bytes"] for s in operator["states"]) > 0

    def test_show_takes_the_manifest_file_too(self, savepoint: Path) -> None:
        assert (
            run("savepoint", "show", savepoint / "manifest.json").stdout == run("savepoint", "show", savepoint).stdout
        )

    def test_show_takes_a_checkpoint_too_and_event_time_of_any_age(self, store: CheckpointStore) -> None:
        made = manifest(watermark_ms=-62_135_596_800_001)
        store.commit(made)
        path = store.describe(store.manifest_path(made.lineage, made.epoch))
        done = run("savepoint", "show", path)
        assert done.returncode == 0, done
        assert "none, a checkpoint" in done.stdout
        assert "-62135596800001 ms" in done.stdout
        assert json.loads(run("savepoint", "show", path, "--json").stdout)["savepoint"] is None

    def test_verify_says_whole_when_it_is(self, savepoint: Path) -> None:
        done = run("savepoint", "verify", savepoint)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("verified: 5 files, ")

    def test_verify_names_every_damaged_missing_and_foreign_file(self, savepoint: Path, tmp_path: Path) -> None:
        gone, damaged, *_ = sorted((tmp_path / "store/state").rglob("*-*.*"))
        gone.unlink()
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
        (savepoint / "stranger").write_bytes(b"")
        done = run("savepoint", "verify", savepoint)
        assert_refused(done, gone, damaged, savepoint / "stranger")
        assert len(done.stderr.splitlines()) == 3
        assert done.stdout == ""

    @pytest.mark.parametrize(
        "command", [["savepoint", "show"], ["savepoint", "verify"], ["plan", "--parallelism", "2"]]
    )
    def test_where_no_savepoint_is_the_path_is_named(self, tmp_path: Path, command: list[str]) -> None:
        assert_refused(run(*command, tmp_path / "typo"), tmp_path / "typo")

    @pytest.mark.parametrize("command", ["show", "verify", "drop"])
    def test_what_is_no_manifest_is_refused_by_name(self, savepoint: Path, command: str) -> None:
        (savepoint / "manifest.json").write_text('{"format": "statecore.manifest", "version": 99}')
        assert_refused(run("savepoint", command, savepoint), savepoint / "manifest.json", "version 99")

    @pytest.mark.parametrize(
        "arguments",
        [[], ["savepoint"], ["savepoint", "show"], ["savepoint", "drop"], ["savepoint", "list", "orders"], ["typo"]],
    )
    def test_wrong_usage_is_exit_code_2(self, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("STATECORE_CATALOG", raising=False)
        done = run(*arguments)
        assert done.returncode == 2
        assert "Usage" in done.stdout + done.stderr


class TestDrop:
    def recorded(self, catalog: Catalog, savepoint: Path) -> None:
        path = str(savepoint / "manifest.json")
        catalog.savepoints.record(path, job="orders", lineage=1, epoch=7, parallelism=2, reason="")

    @pytest.mark.parametrize("given", ["folder", "manifest", "relative", "link"])
    def test_it_goes_and_is_listed_no_more(
        self, catalog: Catalog, job: str, savepoint: Path, tmp_path: Path, given: str
    ) -> None:
        self.recorded(catalog, savepoint)
        (tmp_path / "link").symlink_to(savepoint)
        paths = {"folder": savepoint, "manifest": savepoint / "manifest.json", "link": tmp_path / "link"}
        relative = os.path.relpath(savepoint)
        done = run("savepoint", "drop", paths.get(given, relative))
        assert done == (0, f"dropped {savepoint}/manifest.json: 0 bytes freed\n", "")
        assert not (savepoint / "manifest.json").exists()
        assert catalog.savepoints.of(job) == []

    def test_no_catalog_is_needed(self, savepoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("STATECORE_CATALOG", raising=False)
        assert run("savepoint", "drop", savepoint).returncode == 0
        assert_refused(run("savepoint", "drop", savepoint), savepoint)

    def test_one_that_somebody_removed_is_listed_no_more(self, catalog: Catalog, job: str, savepoint: Path) -> None:
        self.recorded(catalog, savepoint)
        (savepoint / "manifest.json").unlink()
        done = run("savepoint", "drop", savepoint)
        assert done == (0, f"{savepoint} was already gone; removed it from the catalog\n", "")
        assert catalog.savepoints.of(job) == []
        assert_refused(run("savepoint", "drop", savepoint), savepoint)

    def test_a_checkpoint_is_its_jobs_own(self, catalog: Catalog, savepoint: Path, store: CheckpointStore) -> None:
        checkpoint = Path(store.describe(store.manifest_path(1, 7)))
        assert_refused(run("savepoint", "drop", checkpoint), checkpoint, "belong to their job")
        assert checkpoint.exists()
