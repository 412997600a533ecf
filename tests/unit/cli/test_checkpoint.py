"""``checkpoint show`` and ``clone``, and of ``rescale`` and ``verify`` what needs no Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from statecore.errors import NotProvenError
from statecore.queries.proving.digests import StoreDigest
from statecore.queries.proving.proof import Proof
from statecore.queries.reading.stores import StateStore
from statecore.queries.rescale import RescaleResult
from tests.support.paths import REPO
from tests.support.shell import assert_refused, run
from tests.unit.queries.handmade import JOIN, JOIN_STORES, QUERY_ID, ROCKSDB, Handmade, Operator, make

PROOF = Proof(1, (StoreDigest(StateStore(0, "default", 3), {}, (4, 0, 6), (0, 0, 0)),), restart=False)


@pytest.fixture
def made(tmp_path: Path) -> Handmade:
    return make(
        tmp_path / "checkpoint", Operator(JOIN, JOIN_STORES), Operator("globalLimit"), provider=ROCKSDB, pending=True
    )


@pytest.mark.parametrize("command", ["checkpoint show", "savepoint show", "savepoint verify"])
def test_a_backslash_in_a_path_is_named(made: Handmade, command: str) -> None:
    path = made.root.rename(made.root.with_name("check\\point"))
    assert_refused(run(*command.split(), path), f"found a backslash in the last name of the path {path}; expected ")


def test_a_backslash_in_a_target_is_named_before_anything_is_copied(made: Handmade, tmp_path: Path) -> None:
    target = tmp_path / "tar\\get"
    assert_refused(run("checkpoint", "clone", made.root, target), f"of the path {target}; expected ")
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint"]


class TestShow:
    def test_it_prints_what_a_checkpoint_holds(self, made: Handmade) -> None:
        done = run("checkpoint", "show", made.root)
        assert (done.returncode, done.stderr) == (0, "")
        for part in (
            str(made.root),
            QUERY_ID,
            "1; batch 2 is logged and not committed",
            "1970-01-01 00:00:01 UTC",
            "rocksdb, state checkpoint format 1",
            "operator 0: stream-stream join, state format 2, 4 stores, 2 partitions",
            "largest partition 1.60 of the average",
            "160%",
            "operator 1: globalLimit",
            "refused: found a limit",
            '{"logOffset":1}',
        ):
            assert part in done.stdout

    def test_it_tells_programs_the_same(self, made: Handmade) -> None:
        done = run("checkpoint", "show", made.root, "--json")
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
        found = json.loads(done.stdout)
        assert (found["path"], found["query_id"], found["batch"], found["pending"]) == (str(made.root), QUERY_ID, 1, 2)
        assert (found["provider"], found["checkpoint_format"], found["partitions"]) == ("rocksdb", 1, 2)
        assert found["sources"] == [{"kind": "files", "offset": '{"logOffset":1}'}]
        join, limit = found["operators"]
        assert (join["kind"], join["state_format"], join["stores"]) == ("stream-stream join", "2", list(JOIN_STORES))
        assert (limit["name"], limit["state_format"]) == ("globalLimit", None)
        # Of four stores; of one.
        assert (join["rows"], join["skew"]) == ([4, 16], 1.6)
        assert (limit["rows"], limit["skew"]) == ([1, 4], 1.6)
        in_state = {
            path: len(data) for path, data in made.files().items() if path.startswith("state/0/") and "/0/_" not in path
        }
        assert sum(join["bytes"]) == sum(size for path, size in in_state.items() if path.split("/")[2] in ("0", "1"))
        assert found["files"] == len(made.files())
        assert found["bytes"] == sum(map(len, made.files().values()))
        assert found["refusal"].startswith("found a limit")
        assert found["origin"] is None

    def test_what_is_no_checkpoint_is_refused(self, tmp_path: Path) -> None:
        done = run("checkpoint", "show", tmp_path)
        assert_refused(done, tmp_path)
        assert done.stdout == ""


class TestClone:
    def test_it_prints_where_the_clone_is(self, made: Handmade, tmp_path: Path) -> None:
        done = run("checkpoint", "clone", made.root, tmp_path / "target")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1] == str(tmp_path / "target")
        assert "hard links" in done.stdout
        shown = run("checkpoint", "show", tmp_path / "target")
        assert f"{made.root} at batch 1" in shown.stdout

    def test_it_tells_programs_the_same(self, made: Handmade, tmp_path: Path) -> None:
        found = json.loads(run("checkpoint", "clone", made.root, tmp_path / "target", "--json").stdout)
        assert (found["path"], found["target"], found["batch"]) == (str(made.root), str(tmp_path / "target"), 1)
        assert found["linked"] == found["files"] == len(made.files())

    def test_a_target_that_exists_is_refused(self, made: Handmade, tmp_path: Path) -> None:
        (tmp_path / "target").write_text("mine")
        done = run("checkpoint", "clone", made.root, tmp_path / "target")
        assert_refused(done, tmp_path / "target")


class TestRescale:
    def test_it_passes_everything_on_and_prints_the_proof(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[object] = []

        def rescale(*arguments: object, report: object) -> RescaleResult:
            asked.extend(arguments)
            return RescaleResult("/a", "/b", 2, 3, 2, PROOF)

        monkeypatch.setattr("statecore.queries.rescale.rescale", rescale)
        command = ("checkpoint", "rescale", tmp_path / "a", tmp_path / "b", "--partitions", "3", "--query", "q.py")
        done = run(*command)
        assert (done.returncode, done.stderr) == (0, "")
        assert asked == [str(tmp_path / "a"), str(tmp_path / "b"), 3, "q.py"]
        assert "from 2 to 3 state partitions" in done.stdout
        assert "proven: 10 rows of 1 state store " in done.stdout
        assert "restart not tried" in done.stdout
        assert "batch 2 is logged and not committed" in done.stdout
        assert done.stdout.splitlines()[-1] == "/b"
        found = json.loads(run(*command, "--json").stdout)
        assert found == {
            "path": "/a",
            "target": "/b",
            "pending": 2,
            "partitions_before": 2,
            "partitions_after": 3,
            "batch": 1,
            "rows": 10,
            "restart": "not tried",
            "stores": [{"operator": 0, "store": "default", "rows": [4, 0, 6]}],
        }

    def test_a_refusal_exits_with_1(self, made: Handmade, tmp_path: Path) -> None:
        done = run("checkpoint", "rescale", made.root, tmp_path / "target", "--partitions", "3")
        assert done.returncode == 1
        assert done.stderr.startswith("error: found a limit")
        assert not (tmp_path / "target").exists()

    @pytest.mark.parametrize("options", [(), ("--partitions", "0"), ("--partitions", "many")])
    def test_wrong_usage_exits_with_2(self, made: Handmade, tmp_path: Path, options: tuple[str, ...]) -> None:
        done = run("checkpoint", "rescale", made.root, tmp_path / "target", *options)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--partitions" in done.stderr


class TestVerify:
    def test_it_prints_the_proof(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tried = Proof(PROOF.batch, PROOF.stores, restart=True)
        monkeypatch.setattr("statecore.queries.proving.verify.verify", lambda *_, report: tried)
        done = run("checkpoint", "verify", tmp_path / "a", tmp_path / "b", "--query", "q.py")
        assert (done.returncode, done.stderr) == (0, "")
        assert "proven: 10 rows" in done.stdout and "restart tried" in done.stdout
        found = json.loads(run("checkpoint", "verify", tmp_path / "a", tmp_path / "b", "--json").stdout)
        assert (found["path"], found["target"], found["restart"]) == (str(tmp_path / "a"), str(tmp_path / "b"), "tried")

    def test_what_is_not_proven_exits_with_1(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def verify(*_: object, report: object) -> Proof:
            raise NotProvenError("found different state; expected the same rows; repeat the rescale")

        monkeypatch.setattr("statecore.queries.proving.verify.verify", verify)
        done = run("checkpoint", "verify", tmp_path / "a", tmp_path / "b")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: found different state")


def test_the_help_needs_no_spark() -> None:
    program = "import sys, statecore.cli; assert 'pyspark' not in sys.modules and 'boto3' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], cwd=REPO, check=True, timeout=120)
