"""``upgrade``: to a new job file and, if that fails, back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.cli import steps
from statecore.snapshot.checkpoints import CheckpointStore
from tests.support.shell import Done, committed, register, run
from tests.support.supervised import CLUSTER, Supervised

SOUND = """
from statecore import KeyedProcessFunction


class Same(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value.k, value.n


def build(job):
    records = job.source("records", read=lambda spark: spark.readStream.schema("k string, n bigint").json("in"))
    records.key_by("k").process(Same(), output="k string, n bigint", uid="same")
"""


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "RETRY_DELAY", timedelta(seconds=0.01))


@pytest.fixture
def job(catalog: Catalog, store: CheckpointStore) -> str:
    catalog.clusters.register(CLUSTER, "standalone", {}, 1)
    register(catalog, store, cluster=CLUSTER)
    committed(store)
    return "orders"


@pytest.fixture
def running_job(url: str, job: str, store: CheckpointStore) -> Iterator[Supervised]:
    with Supervised(url, job, store) as supervised:
        yield supervised


@pytest.fixture
def new_file(tmp_path: Path) -> Path:
    path = tmp_path / "release-2" / "orders.py"
    path.parent.mkdir()
    path.write_text(SOUND)
    return path


def upgrade(file: Path, *options: str) -> Done:
    return run("upgrade", "orders", "--artifact", file, *options)


def test_a_running_job_goes_on_with_a_new_file(
    catalog: Catalog, job: str, running_job: Supervised, new_file: Path
) -> None:
    before = catalog.jobs.get(job).artifact
    done = upgrade(new_file, "--reason", "a new rule", "--json")
    assert done.returncode == 0, done
    shown = json.loads(done.stdout)
    (recorded,) = catalog.runs.of(job)
    assert (shown["run"], shown["from"], shown["to"]) == (recorded.run_id, before, str(new_file))
    assert shown["savepoint"] == recorded.savepoint
    assert (recorded.state, recorded.reason) == ("done", f"upgrade to {new_file}: a new rule")
    newest, oldest = catalog.generations.of(job)
    assert (oldest.state, newest.state, newest.parallelism) == ("stopped", "running", oldest.parallelism)
    assert catalog.jobs.get(job).artifact == str(new_file) and catalog.leases.find(job) is None


def test_a_file_that_does_not_build_stops_nothing(
    catalog: Catalog, job: str, running_job: Supervised, new_file: Path
) -> None:
    new_file.write_text(SOUND.replace("job.source", "job.sorce"))
    done = upgrade(new_file)
    assert done.returncode == 1 and "orders.py:11 in build: AttributeError" in done.stderr, done
    (newest,) = catalog.generations.of(job)
    assert newest.state == "running" and catalog.leases.find(job) is None


def test_a_job_that_fails_with_the_new_file_returns_to_the_old_one(
    catalog: Catalog, job: str, running_job: Supervised, new_file: Path
) -> None:
    before = catalog.jobs.get(job).artifact
    running_job.fail_with = str(new_file)
    done = upgrade(new_file)
    assert done.returncode == 1 and "out of memory" in done.stderr, done
    after = catalog.jobs.get(job)
    assert after.artifact == before and catalog.leases.find(job) is None
    (recorded,) = catalog.runs.of(job)
    assert recorded.state == "failed"
    running_job.wait_running(after.parallelism)


def test_a_stopped_job_is_not_upgraded(catalog: Catalog, job: str, new_file: Path) -> None:
    done = upgrade(new_file)
    assert done.returncode == 1 and "found job 'orders' stopped; expected it to run" in done.stderr, done
