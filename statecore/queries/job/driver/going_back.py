"""Selects, before a query starts, the checkpoint that it resumes from after a rollback."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

from statecore.catalog import Catalog, JobRecord
from statecore.cluster.spark_home import spark_environment
from statecore.cluster.spark_submit import spark_submit
from statecore.errors import CommitError, NotProvenError
from statecore.queries.job.current_checkpoint import current_checkpoint
from statecore.queries.job.new_checkpoint import is_copied, new_checkpoint
from statecore.storage.workspaces import workspace

log = logging.getLogger(__name__)

# What a copy needs. Agents, plugins and listeners of the job would run a second time beside its driver.
_CONF = (
    "spark.driver.bindAddress",
    "spark.driver.host",
    "spark.driver.memory",
    "spark.hadoop.",
    "spark.jars",
    "spark.local.dir",
    "spark.sql.",
)
_ERROR = "error: "
_PROGRAM = Path(__file__).resolve().parents[2] / "programs" / "rescale.py"


def settled(catalog: Catalog, job: JobRecord, generation: int) -> JobRecord:
    """Return the job with the checkpoint that its query resumes from.

    If the query has logged a batch in the checkpoint that was rolled back, that checkpoint is copied back to the job's
    number of state partitions, with proof. The older checkpoint would repeat batch numbers with other rows.

    Args:
        catalog: Records the selected checkpoint.
        job: The job.
        generation: The generation that is about to start the query.

    Raises:
        CommitError: A newer generation runs the job; it selects the checkpoint.
        NotProvenError: The copy back failed.
        CheckpointError: A checkpoint cannot be read.
        StorageError: The storage fails.

    """
    if job.left_checkpoint is None:
        return job
    source = current_checkpoint(job)
    if source == job.checkpoint:
        log.info("nothing was begun in %s; the query resumes from %s", job.left_checkpoint, source)
        return catalog.jobs.set_desired(job.name, checkpoint=source)
    target = new_checkpoint(job, f"{source.rpartition('/')[2]}-back-to-{job.parallelism}")
    log.info("batches were begun in %s; copying it to %s, %d partitions", source, target, job.parallelism)
    if not is_copied(source, target):
        _copy(job, source, target)
    newest = catalog.generations.newest(job.name)
    if newest is None or newest.generation != generation or newest.ended:
        raise CommitError(
            f"generation {generation} of job {job.name!r} stopped before its first batch: a newer generation runs the "
            "job"
        )
    return catalog.jobs.set_desired(job.name, checkpoint=target)


def _copy(job: JobRecord, source: str, target: str) -> None:
    arguments = ("--checkpoint", source, "--target", target, "--partitions", str(job.parallelism))
    conf = {key: value for key, value in job.conf.items() if key.startswith(_CONF)}
    with workspace("back") as folder:
        # The copy is made on this machine, whatever master this driver's environment names.
        command = spark_submit(
            "local[*]", f"{job.name} back to {job.parallelism}", conf, folder / "spark.properties", _PROGRAM, *arguments
        )
        done = subprocess.run(
            command,
            env=spark_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    for line in done.stdout.splitlines():
        log.info("%s", line)
    if done.returncode:
        raise NotProvenError(
            f"found that {source} cannot be copied back to {job.parallelism} state partitions: "
            f"{_last_words(done.stdout)}; expected a copy, from which job {job.name!r} "
            "resumes after its rollback; read the driver's log"
        )


def _last_words(output: str) -> str:
    """Return a program's error message, else the last line of its output outside a stack trace."""
    told = [line for line in output.splitlines() if line.strip() and not line[0].isspace()]
    errors = [line.removeprefix(_ERROR) for line in told if line.startswith(_ERROR)]
    return (errors or [line.lstrip(": ") for line in told] or ["no output"])[-1]
