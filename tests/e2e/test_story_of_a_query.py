"""A query of Spark's own as a job, through Airflow: started, caught up, scaled by a policy, rolled back from its newest
batch, upgraded, stopped.

The job of the first story rests meanwhile, because the machine has cores for one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statecore.queries.reading.checkpoint import open_checkpoint
from tests.e2e import query
from tests.e2e.world import JOB, SPARK_CONF, World

pytestmark = pytest.mark.nightly

QUERY = "counts"
KEYS, ROWS_PER_FILE = 20, 300


class Counts:
    """The job, fed, watched and judged."""

    def __init__(self, world: World, store: str) -> None:
        self.world = world
        self._folder = world.folder / QUERY
        self._input, self._output = self._folder / "input", self._folder / "output"
        for made in (self._input, self._output):
            made.mkdir(parents=True)
        self._fed: list[tuple[str, int]] = []
        settings = {"input": str(self._input), "output": str(self._output)}
        options = [f"--setting={key}={value}" for key, value in settings.items()]
        options += [f"--conf={key}={value}" for key, value in SPARK_CONF.items()]
        world.command(
            "register", QUERY, "--query", query.__file__, "--checkpoint", str(self._folder / "checkpoint"),
            "--store", store, "--master", "local[1]", "--parallelism", "2", *options,
        )  # fmt: skip
        # An upgrade accepts files that were registered before.
        self.refreshed = self._registered(
            "refreshed.py", ".foreachBatch(", '.trigger(processingTime="1 second").foreachBatch('
        )
        self.averaged = self._registered("averaged.py", 'F.sum("n")', 'F.avg("n")')
        world.command("register", QUERY, "--query", query.__file__)

    def _registered(self, name: str, old: str, new: str) -> str:
        """Register the query file with a change; return its path."""
        source, made = Path(query.__file__).read_text(), self._folder / name
        assert old in source
        made.write_text(source.replace(old, new))
        self.world.command("register", QUERY, "--query", str(made))
        return str(made)

    def feed(self, files: int) -> None:
        for _ in range(files):
            first = len(self._fed)
            rows = [(f"k{n % KEYS}", n) for n in range(first, first + ROWS_PER_FILE)]
            made = self._folder / "made.parquet"
            pq.write_table(pa.table({"k": [k for k, _ in rows], "n": [n for _, n in rows]}), made)
            made.rename(self._input / f"{first:06}.parquet")
            self._fed += rows

    def settle(self) -> None:
        """Wait until the totals are those of all that was fed."""
        truth: dict[str, tuple[int, int]] = {}
        for k, n in self._fed:
            count, total = truth.get(k, (0, 0))
            truth[k] = count + 1, total + n
        self.world.wait(lambda: self._totals() == truth, lambda: f"the totals of {len(self._fed):,} rows", 180)

    def _totals(self) -> dict[str, tuple[int, int]]:
        batches = {int(each.stem): json.loads(each.read_text()) for each in self._output.glob("[0-9]*.json")}
        return {k: (count, total) for number in sorted(batches) for k, count, total in batches[number]}

    def partitions(self) -> int:
        """Return the number of state partitions of the checkpoint that the job has."""
        checkpoint = self.world.catalog.jobs.get(QUERY).checkpoint
        assert checkpoint is not None
        return open_checkpoint(checkpoint).partitions


@pytest.fixture(scope="module")
def counts(world: World) -> Iterator[Counts]:
    world.command("stop", JOB)
    counts = Counts(world, str(world.folder / QUERY / "store"))
    counts.feed(3)
    for dag in ("start", "stop", "savepoints", "upgrade"):
        world.airflow.unpause(dag)
    world.succeed("start", world.trigger("start", "query-starts", job=QUERY))
    yield counts
    # The last test stops it.
    world.command("start", JOB)


def test_a_query_catches_up_and_goes_back(world: World, counts: Counts) -> None:
    counts.settle()
    counts.feed(2)
    run = world.trigger("catch_up", "query-catches-up", job=QUERY, parallelism=3, backlog=0, hold_seconds=1)
    world.succeed("catch_up", run)
    steps = [world.catalog.runs.get(f"{run}__{step}-1") for step in ("scale_out", "scale_back")]
    assert [(each.method, each.from_parallelism, each.to_parallelism) for each in steps] == [
        ("rewrite", 2, 3), ("rewrite", 3, 2),
    ]  # fmt: skip
    counts.settle()
    assert counts.partitions() == 2


def test_a_policy_scales_a_query_and_a_failed_rescale_goes_back_from_the_newest_batch(
    world: World, counts: Counts
) -> None:
    policy = {"min_parallelism": 3, "max_parallelism": 4, "cooldown_s": 1, "method": "rewrite"}
    world.catalog.policies.set(QUERY, policy)
    world.wait(
        lambda: [each.state for each in world.catalog.policies.decisions(QUERY)] == ["done"],
        lambda: f"a decision to be carried out, of {world.catalog.policies.decisions(QUERY)}",
        120,
    )
    world.catalog.policies.set(QUERY, policy, enabled=False)
    counts.settle()
    assert (world.catalog.jobs.get(QUERY).parallelism, counts.partitions()) == (3, 3)

    counts.feed(4)
    world.arm("verify@begun")
    run = world.trigger("rescale", "query-to-2-fails", job=QUERY, parallelism=2)
    ended = world.end_of("rescale", run)
    assert (ended.state, world.was_hit("verify@begun")) == ("failed", True)
    counts.feed(1)
    counts.settle()
    assert (world.catalog.jobs.get(QUERY).parallelism, counts.partitions()) == (3, 3)
    assert world.catalog.leases.find(QUERY) is None


def test_an_upgrade_of_a_query_is_tried_before_anything_stops(world: World, counts: Counts) -> None:
    counts.settle()
    before = world.catalog.generations.newest(QUERY)
    ended = world.end_of("upgrade", world.trigger("upgrade", "averages", job=QUERY, artifact=counts.averaged))
    # The rollback, which always runs, says in the run's state that it failed.
    assert (ended.state, ended.failed_tasks[0].task_id) == ("failed", "lease")
    assert "does not restart" in world.airflow.failure(ended)
    now = world.catalog.generations.newest(QUERY)
    assert before is not None and now is not None
    assert (now.generation, now.state) == (before.generation, "running")
    counts.feed(1)
    world.succeed("upgrade", world.trigger("upgrade", "refreshed", job=QUERY, artifact=counts.refreshed))
    counts.feed(1)
    counts.settle()
    assert world.catalog.jobs.get(QUERY).artifact == counts.refreshed
    world.succeed("savepoints", world.trigger("savepoints", "of-a-query", job=QUERY))


def test_a_query_stops_for_good_and_again_when_the_run_is_cleared(world: World, counts: Counts) -> None:
    stop = world.trigger("stop", "query-stops", job=QUERY)
    for again in (False, True):
        if again:
            world.succeed("start", world.trigger("start", "query-starts-again", job=QUERY))
            counts.feed(1)
            counts.settle()
            world.say("clearing the run that has stopped it")
            world.airflow.clear("stop", stop)
        world.succeed("stop", stop)
        newest = world.catalog.generations.newest(QUERY)
        assert newest is not None and newest.state == "stopped"
        assert world.catalog.jobs.get(QUERY).desired_state == "stopped"
    counts.settle()
