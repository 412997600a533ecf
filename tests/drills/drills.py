"""The drills: what breaks, what a person on call is told, and what they do about it, by the advice alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from statecore.operations.status.alerts import Severity
from statecore.operations.status.finding import Alert
from tests.chaos.processes import JOB, kill, signalled
from tests.drills.world import DrillWorld

Act = Callable[[DrillWorld], None]


@dataclass(frozen=True, slots=True)
class Drill:
    """A fault.

    Attributes:
        name: The fault, in words.
        strike: Makes it.
        alert: The alert that people are sent; None if they are sent nothing.
        severity: The colour of the job's page meanwhile.
        told: What the finding says.
        advised: What the advice says.
        mend: Does what the advice says; None if there is nothing to do.

    """

    name: str
    strike: Act
    alert: Alert | None = None
    severity: Severity | None = None
    told: str = ""
    advised: str = ""
    mend: Act | None = None


def _kill_driver(world: DrillWorld) -> None:
    world.feed()
    kill(*world.driver_session(world.generation().generation))
    world.feed()


def _lock_database(world: DrillWorld) -> None:
    """Keep everybody out of the catalog while epochs go on."""
    file = world.catalog_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(file, isolation_level=None)) as held:
        held.execute("BEGIN EXCLUSIVE")
        world.feed()
        world.settle()
        held.execute("ROLLBACK")


def _kill_supervisor(world: DrillWorld) -> None:
    world.kill_supervisor()
    world.feed()
    world.settle()
    world.start_supervisor()


def _bad_record(world: DrillWorld) -> None:
    world.feed_bad()


def _correct_job_file(world: DrillWorld) -> None:
    text = world.artifact.read_text()
    corrected = text.replace('raise ValueError(f"negative number {value.n}")', "return")
    assert corrected != text
    world.artifact.write_text(corrected)
    world.run("register", JOB, "--artifact", world.artifact)


def _broken_job_file(world: DrillWorld) -> None:
    """Have a job file fail in a way that no check before its start finds."""
    text = world.artifact.read_text()
    broken = world.folder / "broken.py"
    broken.write_text(
        text.replace("    def open(self, ctx):\n", '    def open(self, ctx):\n        raise KeyError("rate")\n')
    )
    world.run("stop", JOB)
    world.run("register", JOB, "--artifact", broken)
    world.run("start", JOB)
    world.feed()


def _register_good(world: DrillWorld) -> None:
    world.run("register", JOB, "--artifact", world.artifact)


def _sink_away(world: DrillWorld) -> None:
    """Put a file where the sink's folder was."""
    world.output.rename(world.folder / "output-away")
    world.output.write_text("")
    world.feed()


def _sink_back(world: DrillWorld) -> None:
    _put_back(world.folder / "output-away", world.output)


def _store_away(world: DrillWorld) -> None:
    """Put a file where the store's folder was, as a failed mount leaves one."""
    world.store.rename(world.folder / "store-away")
    world.store.write_text("")
    world.feed()


def _store_back(world: DrillWorld) -> None:
    _put_back(world.folder / "store-away", world.store)


def _put_back(away: Path, path: Path) -> None:
    """Exchange what is at a path for a folder, at once: drivers come and go."""
    path.rename(path.with_name(f"{path.name}-instead"))
    away.rename(path)


def _input_away(world: DrillWorld) -> None:
    world.input.rename(world.folder / "input-away")


def _input_back(world: DrillWorld) -> None:
    (world.folder / "input-away").rename(world.input)
    world.feed()


def _lose_state_file(world: DrillWorld) -> None:
    newest = max(_state_files(world), key=lambda path: path.stat().st_mtime)
    newest.rename(world.folder / "lost")
    (world.folder / "lost-from").write_text(str(newest))
    kill(*world.driver_session(world.generation().generation))


def _restore_state_file(world: DrillWorld) -> None:
    (world.folder / "lost").rename((world.folder / "lost-from").read_text())
    world.feed()


def _state_files(world: DrillWorld) -> list[Path]:
    return [path for path in world.store.glob("state/**/*") if path.is_file()]


def _freeze_workers(world: DrillWorld) -> None:
    # Workers that were idle for a minute are gone, and the daemon would fork others.
    world.feed()
    world.settle()
    signalled(world.processes("pyspark.daemon"), "suspend")
    world.feed()


def _kill_frozen_driver(world: DrillWorld) -> None:
    kill(*world.driver_session(world.generation().generation), *world.processes("pyspark.daemon"))


def _silence(world: DrillWorld) -> None:
    """Say how long nothing may arrive, and have nothing arrive."""
    world.run("stop", JOB)
    world.run("register", JOB, "--conf", "statecore.source.silent=1min")
    world.run("start", JOB)


def _end_silence(world: DrillWorld) -> None:
    world.feed()
    world.settle()
    world.run("stop", JOB)
    world.run("register", JOB, "--conf", "statecore.source.silent=")
    world.run("start", JOB)
    world.feed()


def _kill_rescale(world: DrillWorld) -> None:
    """Kill the shell that rescales the job, once it has the lease."""
    rescale = world.shell("rescale", JOB, "--parallelism", 3, "--method", "by_reference")
    world.wait(lambda: world.catalog.leases.find(JOB) is not None, "the lease")
    rescale.kill()
    rescale.wait()
    world.feed()


def _rescale_again(world: DrillWorld) -> None:
    world.run("rescale", JOB, "--parallelism", 3)


DRILLS = (
    Drill("the driver is killed", _kill_driver),
    Drill("the catalog's database is locked", _lock_database),
    Drill("the supervisor is killed, and started again", _kill_supervisor),
    Drill(
        "a record that the job fails on", _bad_record, Alert.CRASH_LOOP, Severity.CRITICAL,
        "ValueError: negative number -1", "correct the job file and register it", _correct_job_file,
    ),
    Drill(
        "a job file that fails when it starts", _broken_job_file, Alert.CRASH_LOOP, Severity.CRITICAL,
        "KeyError: 'rate'", "correct the job file and register it", _register_good,
    ),
    Drill(
        "the sink's folder is gone", _sink_away, Alert.CRASH_LOOP, Severity.CRITICAL,
        "counted", "look whether the sink is there", _sink_back,
    ),
    Drill(
        "the job's store is gone", _store_away, Alert.CRASH_LOOP, Severity.CRITICAL,
        "", "look whether the job's store is there, has space left", _store_back,
    ),
    Drill(
        "a state file is lost", _lose_state_file, Alert.CRASH_LOOP, Severity.CRITICAL,
        "state/", "bring the named file back from a backup", _restore_state_file,
    ),
    Drill(
        "the input's folder is gone", _input_away, Alert.SOURCE_SILENT, Severity.WARNING,
        "cannot be looked at: found no ", "look whether the source is there", _input_back,
    ),
    Drill(
        "nothing arrives", _silence, Alert.SOURCE_SILENT, Severity.WARNING,
        "nothing has arrived for", "look whether what writes the source runs", _end_silence,
    ),
    Drill(
        "the Python workers hang", _freeze_workers, Alert.STREAM_STALLED, Severity.CRITICAL,
        "records wait, but no epoch was committed", "look at Spark's page", _kill_frozen_driver,
    ),
    Drill(
        "a rescale is killed", _kill_rescale, Alert.LEASE_TAKEN_BACK, Severity.WARNING,
        "was taken back", "find out in its log why that run ended, then start it again", _rescale_again,
    ),
)  # fmt: skip
"""In the order in which they are played: the second half of them needs what the first has left."""
