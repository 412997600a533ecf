"""Runs ``build(job)`` in this process, on this process's Spark session and a catalog in a folder."""

from __future__ import annotations

import inspect
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from statecore.blame import exception_line, job_file_line
from statecore.catalog import Catalog, GenerationRecord, Generations, JobRecord, Jobs
from statecore.catalog.queries import check_name
from statecore.errors import ConfigurationError, FunctionError, GenerationClaimedError, StatecoreError, UnknownJobError
from statecore.model import default_max_parallelism
from statecore.runtime.driver.available import run_until_available
from statecore.runtime.driver.generation import job_session
from statecore.runtime.driver.query_settings import session_settings
from statecore.runtime.job import Job, described
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.job_files import keep_job_file
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.published import unpublished_sinks
from statecore.snapshot.resume_point import known_generation
from statecore.storage import open_store

if TYPE_CHECKING:
    from types import ModuleType

log = logging.getLogger(__name__)

Build = Callable[[Job], object]
Result = TypeVar("Result")

_RELIES_ON = {
    "spark.sql.session.timeZone": "UTC",
    # Otherwise a source that cannot stop at what is available now would read all of it as one epoch.
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true",
}
_LOCALITY = "spark.shuffle.reduceLocality.enabled"
# Longer than a killed run counts as alive.
_CLAIM_S = 30.0


@dataclass(frozen=True, slots=True)
class LocalRun:
    """Result of a run.

    Attributes:
        job: Name of the job.
        epochs: Number of epochs that this run committed.
        rows: Number of records that this run read.
        outputs: Path of each sink that has one, by the sink's name.
        savepoint: URL of the savepoint that the run ended with; None while the job has read no record.

    """

    job: str
    epochs: int
    rows: int
    outputs: Mapping[str, str]
    savepoint: str | None


def run_available(
    build: Build, *, name: str, settings: Mapping[str, str], folder: str | Path, from_savepoint: str | Path | None
) -> LocalRun:
    """Run a job over what is available; see ``statecore.run``."""
    check_name("job", name)
    root = Path(folder).resolve()
    plan = described(build, settings)
    spark = _session(name)
    artifact, source = _source(build)
    with Catalog(f"sqlite:///{root / 'catalog.db'}") as catalog, session_settings(spark, _RELIES_ON), _by_value(build):
        catalog.create_schema()
        store = str(root / "jobs" / name)
        cores = spark.sparkContext.defaultParallelism
        max_parallelism = _max_parallelism(catalog.jobs, name, cores)
        catalog.jobs.register(
            name,
            artifact=str(artifact),
            artifact_sha256=keep_job_file(open_store(store), str(artifact), source),
            store=store,
            master_url=str(spark.sparkContext.master),
            settings=settings,
            parallelism=min(cores, max_parallelism),
            max_parallelism=max_parallelism,
        )
        if from_savepoint is not None:
            _waiting(lambda: _begin_with(str(from_savepoint), catalog, name, cores))

        def load(job: JobRecord, checkpoints: CheckpointStore, directory: Path) -> tuple[Path, Job]:
            copy = directory / artifact.name
            copy.write_bytes(source)
            return copy, plan

        with _ProgressLine(name) as line:
            try:
                ended = run_until_available(catalog, _claimed(catalog.generations, name), spark, load, line.show)
            except Exception as error:
                raise _clean(error, plan, build) from None
    before, newest = ended.before, ended.newest
    return LocalRun(
        job=name,
        epochs=_difference(before, newest, lambda manifest: manifest.epoch + 1),
        rows=_difference(before, newest, lambda manifest: manifest.rows_total),
        outputs={each.name: each.sink.path for each in plan.sinks if hasattr(each.sink, "path")},
        savepoint=ended.savepoint,
    )


def _session(name: str) -> SparkSession:
    """Return this process's session, or a new one.

    Raises:
        ConfigurationError: The session is one of Spark Connect.

    """
    # For a new session: workers run this Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    existing = SparkContext._active_spark_context is not None
    spark = SparkSession.builder.getOrCreate() if existing else job_session(name)
    if not hasattr(spark, "_jsparkSession"):
        raise ConfigurationError(
            "found a session of Spark Connect; expected one whose driver is this process, because epochs are committed "
            "there; create one with SparkSession.builder.master(…), or register the job and let a supervisor run it"
        )
    context = spark.sparkContext
    if context.getConf().get(_LOCALITY, "true") != "false" and not str(context.master).startswith("local["):
        log.warning(
            "found %s=true in a session on %s; expected false: subtasks move away from the executors that hold their "
            "state, and read it from files; set it where the session is created", _LOCALITY, context.master,
        )  # fmt: skip
    return spark


@contextmanager
def _by_value(build: Build) -> Iterator[None]:
    """Ship the functions of the module of ``build`` by value, as those of a job file, for the block."""
    module: ModuleType | None = sys.modules.get(getattr(build, "__module__", ""))
    if module is None or module.__name__ == "__main__":
        # Functions of the main module always are.
        yield
        return
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _source(build: Build) -> tuple[Path, bytes]:
    """Return name and text of the job file for the manifest: the file of ``build``, or only its source."""
    file = Path(build.__code__.co_filename) if inspect.isfunction(build) else None
    if file is not None and file.is_file():
        return file.resolve(), file.read_bytes()
    try:
        return Path("interactive.py"), inspect.getsource(build).encode()
    except (OSError, TypeError):
        return Path("interactive.py"), f"# {build!r} was defined interactively\n".encode()


def _max_parallelism(jobs: Jobs, name: str, parallelism: int) -> int:
    try:
        return jobs.get(name).max_parallelism
    except UnknownJobError:
        return default_max_parallelism(parallelism)


def _begin_with(savepoint: str, catalog: Catalog, name: str, parallelism: int) -> None:
    """Let a job without epochs begin with a savepoint.

    Raises:
        ConfigurationError: It has epochs.
        GenerationClaimedError: Another process runs it.
        StatecoreError: The savepoint cannot be read.

    """
    if catalog.generations.is_alive(catalog.generations.newest(name)):
        raise GenerationClaimedError(
            f"found another process that runs job {name!r}; expected none, because the job should begin with "
            f"{savepoint}; wait for the other, or name another folder or job"
        )
    own = CheckpointStore.at(catalog.jobs.get(name).store)
    if (newest := own.newest()) is not None:
        raise ConfigurationError(
            f"found epoch {newest.epoch} of job {name!r} in {own.files.url}; expected none, because the job should "
            f"begin with {savepoint}; leave from_savepoint out to go on from that epoch, or name another folder or job"
        )
    opened = open_savepoint(savepoint)
    asked = opened.manifest
    if waiting := unpublished_sinks(opened.store, asked):
        log.warning("epoch %d of job %s is not published in %s; this run does not", asked.epoch, asked.job, waiting)
    catalog.jobs.set_desired(
        name,
        parallelism=min(parallelism, asked.max_parallelism),
        max_parallelism=asked.max_parallelism,
        start_from=opened.store.describe(opened.path),
        start_after=known_generation(own, None, asked),
    )


def _claimed(generations: Generations, name: str) -> GenerationRecord:
    """Claim a generation."""
    return _waiting(lambda: generations.claim(name, log_path=""))


def _waiting(action: Callable[[], Result]) -> Result:
    """Do what needs the job alone; wait while the generation of a killed run counts as alive."""
    for attempt in Retrying(
        retry=retry_if_exception_type(GenerationClaimedError),
        stop=stop_after_delay(_CLAIM_S),
        wait=wait_fixed(1),
        reraise=True,
    ):
        with attempt:
            return action()
    raise AssertionError("the last attempt returns or raises")


def _difference(before: Manifest | None, newest: Manifest | None, of: Callable[[Manifest], int]) -> int:
    if newest is None:
        # Nothing was read, also after a savepoint.
        return 0
    return of(newest) - (0 if before is None else of(before))


def _clean(error: Exception, plan: Job, build: Build) -> Exception:
    """Return a failure without the frames of Spark, of the JVM and of statecore."""
    line = exception_line(error)
    if isinstance(error, StatecoreError) or not line.startswith(f"{FunctionError.__name__}: "):
        return error
    functions = [operator.function for operator in plan.operators]
    files = {code.co_filename for each in (build, *functions) for code in _codes(each)}
    place = job_file_line(error, files)
    text = line.removeprefix(f"{FunctionError.__name__}: ")
    return FunctionError(text if place is None else f"{place}: {text}")


def _codes(thing: object) -> Iterator[Any]:
    members = vars(type(thing)).values()
    for each in (thing, *members):
        if inspect.isfunction(each):
            yield each.__code__


class _ProgressLine:
    """One line on stderr with the progress of a run."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._began_s = time.monotonic()
        self._shown = False

    def __enter__(self) -> _ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            print(file=sys.stderr)

    def show(self, newest: Manifest) -> None:
        """Rewrite the line."""
        self._shown = True
        took_s = time.monotonic() - self._began_s
        text = f"{self._job}: {newest.rows_total:,} records in {newest.epoch + 1} epochs, {took_s:.0f} s"
        print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)
