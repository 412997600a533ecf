"""Queries of Spark's own as jobs: registered, stopped without a driver, and refused what they cannot have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.operations.changes import RescaleRequest, plan
from statecore.operations.changes.copying import CopyCheckpoint
from statecore.queries.copying.clone import clone
from statecore.queries.job.heads import Heads
from statecore.queries.job.new_checkpoint import is_copied
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.origin import read_origin
from statecore.runtime.generation.definition import definition_of
from statecore.snapshot.job_definition import write_definition
from statecore.storage import open_store
from tests.support.shell import Done, assert_refused, run
from tests.unit.queries.handmade import Handmade, Operator, commit, make

pytestmark = pytest.mark.usefixtures("catalog")


@pytest.fixture
def made(tmp_path: Path) -> Handmade:
    return make(tmp_path / "checkpoint", Operator(partitions=3), batches=3)


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No query file is loaded: that takes seconds."""
    monkeypatch.setattr("statecore.cli.register.check_job_file", lambda *_, **__: None)


def register(tmp_path: Path, *more: str | Path, name: str = "totals", checkpoint: str | Path = "") -> Done:
    (tmp_path / "totals.py").write_text("def build(spark, settings): ...")
    return run(
        "register", name, "--query", tmp_path / "totals.py", "--checkpoint", checkpoint or tmp_path / "checkpoint",
        "--store", tmp_path / name, "--master", "local[2]", *more,
    )  # fmt: skip


class TestRegister:
    def test_the_checkpoint_says_how_many_partitions(self, tmp_path: Path, catalog: Catalog, made: Handmade) -> None:
        done = register(tmp_path, "--setting", "in=/data")
        assert (done.returncode, done.stdout) == (0, f"registered totals: 3 state partitions, in {made.root}\n")
        job = catalog.jobs.get("totals")
        assert (job.checkpoint, job.parallelism, job.is_query) == (str(made.root), 3, True)
        assert job.settings == {"in": "/data"}
        assert json.loads(run("status", "totals", "--json").stdout)["checkpoint"] == str(made.root)
        assert f"3 state partitions, in {made.root}" in " ".join(run("status", "totals").stdout.split())

    def test_a_new_checkpoint_needs_a_number(self, tmp_path: Path, catalog: Catalog) -> None:
        done = register(tmp_path, checkpoint=tmp_path / "new")
        assert done.returncode == 2
        assert "found no --parallelism" in " ".join(done.stderr.replace("│", "").split())
        assert register(tmp_path, "--parallelism", "4", checkpoint=tmp_path / "new").returncode == 0
        assert catalog.jobs.get("totals").parallelism == 4

    def test_another_number_than_the_checkpoint_has_is_refused(self, tmp_path: Path, made: Handmade) -> None:
        refused = register(tmp_path, "--parallelism", "4")
        assert_refused(refused, "which has 3 state partitions", f"checkpoint rescale {made.root} TARGET --partitions 4")

    def test_another_checkpoint_brings_its_number(self, tmp_path: Path, catalog: Catalog, made: Handmade) -> None:
        register(tmp_path)
        five = make(tmp_path / "five", Operator(partitions=5))
        assert run("register", "totals", "--checkpoint", five.root).returncode == 0
        job = catalog.jobs.get("totals")
        assert (job.checkpoint, job.parallelism) == (str(five.root), 5)
        changes = [each.change.get("checkpoint") for each in catalog.jobs.audit("totals")]
        assert [str(made.root), str(five.root)] in changes

    def test_a_query_that_has_begun_batches_is_not_taken_back(
        self, tmp_path: Path, catalog: Catalog, made: Handmade
    ) -> None:
        register(tmp_path)
        copy = make(tmp_path / "copy", Operator(partitions=5), batches=made.batches + 2)
        heads = Heads(str(tmp_path / "totals"))
        heads.append(str(made.root), "registered", 1)
        heads.append(str(copy.root), "run", 1)
        refused = run("register", "totals", "--checkpoint", made.root)
        assert_refused(refused, f"found batch {made.batches + 1} begun in {copy.root}", "leave --checkpoint out")
        again = register(tmp_path, "--master", "local[3]")
        assert_refused(again, f"--from {made.root} --roll-back")
        assert run("register", "totals", "--checkpoint", copy.root).returncode == 0
        assert catalog.jobs.get("totals").checkpoint == str(copy.root)
        assert [head.number for head in Heads(str(tmp_path / "totals"))] == [2, 1]

    def test_a_store_with_the_batches_of_another_query_is_refused(self, tmp_path: Path, made: Handmade) -> None:
        Heads(str(tmp_path / "totals")).append(str(made.root), "registered", 1)
        assert_refused(register(tmp_path, "--parallelism", "4", checkpoint=tmp_path / "new"), "give another --store")

    def test_a_running_query_keeps_its_checkpoint(self, tmp_path: Path, catalog: Catalog, made: Handmade) -> None:
        register(tmp_path)
        run("start", "totals")
        five = make(tmp_path / "five", Operator(partitions=5))
        refused = run("register", "totals", "--checkpoint", five.root)
        assert_refused(refused, f"running, or about to run, on {made.root}", "`statecore stop totals` first")
        assert catalog.jobs.get("totals").checkpoint == str(made.root)

    def test_a_checkpoint_has_one_job(self, tmp_path: Path, made: Handmade) -> None:
        register(tmp_path)
        assert_refused(register(tmp_path, name="other"), f"the checkpoint {made.root} in use by job 'totals'")
        (tmp_path / "elsewhere").symlink_to(made.root)
        linked = register(tmp_path, "--checkpoint", tmp_path / "elsewhere", name="other")
        assert_refused(linked, f"the checkpoint {made.root} in use by job 'totals'")

    def test_a_damaged_checkpoint_is_refused(self, tmp_path: Path, made: Handmade) -> None:
        made.write("offsets/2", "v1\nnothing", checksum=False)
        assert_refused(register(tmp_path), "offsets/2")

    def test_a_savepoint_is_not_written_to(self, tmp_path: Path, made: Handmade) -> None:
        register(tmp_path)
        path = stopped(tmp_path)
        assert_refused(run("register", "totals", "--checkpoint", path), "among savepoints", "checkpoint clone")

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            (["--artifact", "job.py"], "found --artifact and --query"),
            (["--max-parallelism", "128"], "has no key groups"),
        ],
    )
    def test_options_of_the_other_kind_are_wrong(self, tmp_path: Path, more: list[str], said: str) -> None:
        done = register(tmp_path, *more)
        assert done.returncode == 2
        assert said in " ".join(done.stderr.replace("│", "").split())

    def test_a_job_stays_of_its_kind(self, tmp_path: Path, made: Handmade, job: str) -> None:
        register(tmp_path)
        for name, option in ((job, "--query"), ("totals", "--artifact")):
            done = run("register", name, option, tmp_path / "totals.py")
            assert done.returncode == 2
            assert f"found that '{name}' is" in " ".join(done.stderr.replace("│", "").split())
        assert_refused(run("register", job, "--checkpoint", tmp_path / "new"), "expected it to stay one")


def stopped(tmp_path: Path) -> str:
    """Stop the job, which should run and has no driver; return the address of its savepoint."""
    assert run("start", "totals").returncode == 0
    done = run("stop", "totals")
    assert done.returncode == 0, done
    return done.stdout.strip()


class TestStop:
    def test_without_a_driver_the_checkpoint_is_cloned(self, tmp_path: Path, catalog: Catalog, made: Handmade) -> None:
        made.write("offsets/3", (made.root / "offsets/2").read_bytes())
        register(tmp_path)
        before = made.files()
        url = stopped(tmp_path)
        assert made.files() == before
        copy = open_checkpoint(url)
        # The batch that is logged and not committed belongs to it: a sink may have its rows.
        assert (copy.batch, copy.pending, copy.partitions) == (2, 3, 3)
        origin = read_origin(open_store(url))
        assert origin is not None
        assert (origin.path, origin.action) == (str(made.root), "clone")
        (recorded,) = catalog.savepoints.of("totals")
        assert (recorded.path, recorded.lineage, recorded.epoch, recorded.parallelism) == (url, 1, 2, 3)
        assert catalog.jobs.get("totals").desired_state == "stopped"

    def test_before_the_first_batch_there_is_no_savepoint(self, tmp_path: Path) -> None:
        register(tmp_path, "--parallelism", "2")
        run("start", "totals")
        done = run("stop", "totals")
        assert (done.returncode, done.stdout) == (0, "")
        assert "no batch is committed" in done.stderr

    def test_a_stopped_one_says_where_a_start_goes_on(self, tmp_path: Path, made: Handmade) -> None:
        register(tmp_path)
        assert f"a start resumes from batch 2 of {made.root}" in run("stop", "totals").stderr

    def test_a_damaged_checkpoint_is_stopped_and_not_cloned(self, tmp_path: Path, made: Handmade) -> None:
        register(tmp_path)
        made.remove("state/0/1/3.delta")
        run("start", "totals")
        assert_refused(run("stop", "totals"), "found no state of version 3 in state/0/1")
        assert list((tmp_path / "totals" / "savepoints").iterdir()) == []


class TestSavepoints:
    def test_one_is_shown_as_the_checkpoint_that_it_is(self, tmp_path: Path, made: Handmade) -> None:
        register(tmp_path)
        url = stopped(tmp_path)
        shown = json.loads(run("savepoint", "show", url, "--json").stdout)
        assert (shown["path"], shown["batch"], shown["partitions"]) == (url, 2, 3)
        assert shown["origin"]["path"] == str(made.root)

    def test_one_that_lacks_a_file_is_not_verified(self, tmp_path: Path, made: Handmade) -> None:
        register(tmp_path)
        url = stopped(tmp_path)
        Path(url, "state/0/1/3.delta").unlink()
        done = run("savepoint", "verify", url, "--json")
        assert (done.returncode, len(json.loads(done.stdout)["problems"])) == (1, 1)
        assert f"found no state of version 3 in state/0/1 of {url}" in done.stderr

    def test_one_whose_state_cannot_be_read_is_known_to_be_there(self, tmp_path: Path, made: Handmade) -> None:
        register(tmp_path)
        url = stopped(tmp_path)
        Handmade(Path(url), 3).change_conf(2, spark__sql__streaming__stateStore__encodingFormat="avro")
        done = run("savepoint", "verify", url)
        assert done.returncode == 0, done
        assert "files are there; state was not read: found" in done.stdout

    def test_one_is_dropped_and_forgotten_and_the_checkpoint_stays(
        self, tmp_path: Path, catalog: Catalog, made: Handmade
    ) -> None:
        register(tmp_path)
        url, before = stopped(tmp_path), made.files()
        assert json.loads(run("savepoint", "drop", url, "--json").stdout)["path"] == url
        assert not Path(url).exists()
        assert catalog.savepoints.of("totals") == []
        assert made.files() == before

    def test_a_drop_that_was_cut_off_is_done_by_the_next(self, tmp_path: Path, made: Handmade) -> None:
        register(tmp_path)
        url = stopped(tmp_path)
        Path(url, ".statecore-incomplete").write_text("dropped")
        Path(url, "metadata").unlink()
        assert_refused(run("savepoint", "show", url), "that is not whole")
        assert run("savepoint", "drop", url).returncode == 0
        assert not Path(url).exists()

    def test_only_savepoints_are_dropped(self, tmp_path: Path, made: Handmade) -> None:
        register(tmp_path)
        clone(open_checkpoint(str(made.root)), str(tmp_path / "copy"))
        assert_refused(run("savepoint", "drop", tmp_path / "copy"), "found no savepoint", "remove any other checkpoint")
        assert Path(tmp_path, "copy", "metadata").exists()

    def test_one_that_a_job_has_as_its_checkpoint_stays(self, tmp_path: Path, catalog: Catalog, made: Handmade) -> None:
        register(tmp_path)
        url = stopped(tmp_path)
        # As somebody may have registered it by the catalog's API.
        catalog.jobs.set_desired("totals", checkpoint=f"{Path(url).parent}/./{Path(url).name}")
        assert_refused(run("savepoint", "drop", url), "to be the checkpoint of job 'totals'")

    def test_one_that_a_rescale_may_need_stays(self, tmp_path: Path, catalog: Catalog, made: Handmade) -> None:
        register(tmp_path)
        url = stopped(tmp_path)
        catalog.runs.start("r1", "totals", from_parallelism=3, to_parallelism=4)
        catalog.runs.update("r1", savepoint=url.removeprefix(f"{tmp_path}/totals/"))
        assert_refused(run("savepoint", "drop", url), "in use by the rescale r1 of job 'totals'")
        catalog.runs.finish("r1")
        assert run("savepoint", "drop", url).returncode == 0


def test_a_lost_catalog_is_rebuilt_from_the_store(tmp_path: Path, catalog: Catalog, made: Handmade) -> None:
    register(tmp_path)
    url = stopped(tmp_path)
    # What a generation writes before it starts the query.
    write_definition(open_store(str(tmp_path / "totals")), definition_of(catalog.jobs.get("totals")))
    new = f"sqlite:///{tmp_path}/new.db"
    done = run("catalog", "rebuild", tmp_path / "totals", "--catalog", new, "--json")
    (rebuilt,) = json.loads(done.stdout)
    assert (rebuilt["job"], rebuilt["savepoints"], rebuilt["epoch"]) == ("totals", 1, 2)
    with Catalog(new) as opened:
        job, (savepoint,) = opened.jobs.get("totals"), opened.savepoints.of("totals")
    assert (job.checkpoint, job.parallelism, job.desired_state) == (str(made.root), 3, "stopped")
    assert (savepoint.path, savepoint.epoch, savepoint.parallelism) == (url, 2, 3)


class TestStartFrom:
    def test_the_job_gets_a_clone(self, tmp_path: Path, catalog: Catalog, made: Handmade) -> None:
        register(tmp_path)
        url = stopped(tmp_path)
        done = run("start", "totals", "--from", f"savepoints/{Path(url).name}", "--json")
        assert done.returncode == 0, done
        job = catalog.jobs.get("totals")
        assert job.checkpoint is not None
        assert (job.desired_state, Path(job.checkpoint).parent) == ("running", tmp_path / "totals" / "checkpoints")
        assert open_checkpoint(job.checkpoint).batch == 2
        # What the query writes now does not change it.
        assert open_checkpoint(url).batch == 2

    def test_batches_are_left_behind_only_on_request(self, tmp_path: Path, catalog: Catalog, made: Handmade) -> None:
        register(tmp_path)
        url = stopped(tmp_path)
        made.write("offsets/3", (made.root / "offsets/2").read_bytes())
        refused = run("start", "totals", "--from", url)
        assert_refused(refused, f"found batch 3 begun in {made.root}", "which is at batch 2", "add --roll-back")
        assert catalog.jobs.get("totals").checkpoint == str(made.root)
        assert run("start", "totals", "--from", url, "--roll-back").returncode == 0
        assert catalog.jobs.get("totals").checkpoint != str(made.root)

    def test_another_batch_under_the_same_number_is_one_to_leave_behind(
        self, tmp_path: Path, catalog: Catalog, made: Handmade
    ) -> None:
        register(tmp_path)
        url = stopped(tmp_path)
        offsets = (made.root / "offsets/2").read_text()
        # A new file: the savepoint has a link to the old one.
        made.remove("offsets/2")
        made.write("offsets/2", offsets.replace('"batchTimestampMs":', '"batchTimestampMs":9'))
        assert_refused(run("start", "totals", "--from", url), "lacks that batch", "add --roll-back")
        assert catalog.jobs.get("totals").desired_state == "stopped"

    def test_its_number_of_partitions_is_the_jobs(self, tmp_path: Path, catalog: Catalog, made: Handmade) -> None:
        register(tmp_path)
        five = make(tmp_path / "five", Operator(partitions=5), batches=3)
        assert run("start", "totals", "--from", five.root).returncode == 0
        assert catalog.jobs.get("totals").parallelism == 5

    def test_a_running_job_does_not_begin_anew(self, tmp_path: Path, made: Handmade) -> None:
        register(tmp_path)
        run("start", "totals")
        assert_refused(run("start", "totals", "--from", made.root), "expected it stopped")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["start", "--from", "/s", "--claim"], "the job gets a clone"),
        (["start", "--from", "/s", "--skip-unpublished"], "after its sink has the rows"),
        (["start", "--from", "/s", "--parallelism", "3"], "the number is that of the savepoint"),
        (["start", "--parallelism", "4"], "statecore rescale totals --parallelism 4"),
        (["rescale", "--parallelism", "4", "--method", "live"], "choose the method rewrite"),
        (["rescale", "--parallelism", "4", "--method", "by_reference"], "choose the method rewrite"),
        (["rescale", "--parallelism", "4", "--method", "rewrite", "--max-parallelism", "64"], "it has no key groups"),
        (["policy", "set", "--max-parallelism", "8", "--method", "live"], "leave --method out"),
    ],
    ids=["claim", "unpublished", "from at another", "parallelism", "live", "by reference", "key groups", "policy"],
)
def test_what_a_query_cannot_have_is_refused(tmp_path: Path, made: Handmade, command: list[str], said: str) -> None:
    register(tmp_path)
    at = 2 if command[0] == "policy" else 1
    done = run(*command[:at], "totals", *command[at:])
    assert_refused(done, "which is a query of Spark's own; expected a job of statecore", said)


def test_a_policy_of_a_query_rescales_by_rewriting(tmp_path: Path, catalog: Catalog, made: Handmade, job: str) -> None:
    register(tmp_path)
    assert run("policy", "set", "totals", "--max-parallelism", "8").returncode == 0
    policy = catalog.policies.find("totals")
    assert policy is not None
    assert policy.settings["method"] == "rewrite"
    assert_refused(run("policy", "set", job, "--max-parallelism", "8", "--method", "rewrite"), "live or by_reference")


def test_a_query_that_runs_is_cloned_at_the_batch_that_was_committed(tmp_path: Path, made: Handmade) -> None:
    made.write("offsets/3", (made.root / "offsets/2").read_bytes())
    found = open_checkpoint(str(made.root))
    # It goes on while it is cloned.
    made.write("commits/3", commit(3))
    result = clone(found, str(tmp_path / "copy"), running=True)
    assert (result.batch, result.pending) == (2, None)
    assert (open_checkpoint(result.target).batch, open_checkpoint(result.target).pending) == (2, None)


class TestRescale:
    def test_the_plan_tells_partitions_rows_and_skew(self, tmp_path: Path, catalog: Catalog, made: Handmade) -> None:
        register(tmp_path)
        request = RescaleRequest(job="totals", parallelism=6, reason="backlog")
        planned = plan(catalog, request, check=False)
        assert (planned.method, planned.state) == ("rewrite", None)
        told = planned.markdown()
        assert "Job totals, method rewrite: parallelism 3 to 6." in told
        assert f"Checkpoint {made.root} at batch 2: " in told
        assert "Operator 0, aggregation: 3 state partitions, 12 rows, largest partition 1.75 of the average." in told

    def test_the_shell_prints_it(self, tmp_path: Path, made: Handmade) -> None:
        register(tmp_path)
        told = run("plan", "totals", "--parallelism", "6").stdout
        assert "totals: 3 -> 6 state partitions, rewrite" in told
        assert "Operator 0, aggregation: 3 state partitions, 12 rows" in told
        found = json.loads(run("plan", "totals", "--parallelism", "6", "--json").stdout)
        assert (found["from_parallelism"], found["to_parallelism"], found["refusal"]) == (3, 6, None)

    def test_the_plan_says_what_cannot_be_rescaled(self, tmp_path: Path, catalog: Catalog, made: Handmade) -> None:
        register(tmp_path)
        made.change_conf(2, spark__sql__streaming__stateStore__providerClass="org.example.Store")
        told = plan(catalog, RescaleRequest(job="totals", parallelism=6), check=False).markdown()
        assert "It cannot be rescaled: found" in told
        # Before anything is stopped.
        assert_refused(run("rescale", "totals", "--parallelism", "6"), "org.example.Store")

    def test_the_copy_runs_on_this_machine_and_no_setting_is_in_its_command(
        self, tmp_path: Path, catalog: Catalog, made: Handmade
    ) -> None:
        register(tmp_path, "--setting", "password=secret", "--conf", "spark.x=hidden")
        command = CopyCheckpoint(catalog.jobs.get("totals"), "/from", "/store/checkpoints/to", 6).command(tmp_path)
        assert command[command.index("--master") + 1] == "local[*]"
        assert not any("secret" in each or "hidden" in each for each in command)
        settings, query = (Path(command[command.index(option) + 1]) for option in ("--settings", "--query"))
        assert json.loads(settings.read_text()) == {"password": "secret"}
        assert settings.stat().st_mode & 0o077 == 0
        assert query.read_text().startswith("def build")
        assert command[command.index("--partitions") + 1] == "6"

    def test_a_copy_that_an_earlier_attempt_made_counts_if_it_is_of_the_newest_batch(
        self, tmp_path: Path, made: Handmade
    ) -> None:
        assert not is_copied(str(made.root), str(tmp_path / "to"))
        clone(open_checkpoint(str(made.root)), str(tmp_path / "to"))
        assert is_copied(str(made.root), str(tmp_path / "to"))
        made.write("offsets/3", (made.root / "offsets/2").read_bytes())
        assert not is_copied(str(made.root), str(tmp_path / "to"))
