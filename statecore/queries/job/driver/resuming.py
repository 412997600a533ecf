"""Selects the checkpoint that a query resumes from, before its driver starts it."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

from statecore.catalog import Catalog, JobRecord
from statecore.cluster.spark_home import spark_environment
from statecore.cluster.spark_submit import spark_submit
from statecore.errors import CommitError, NotProvenError
from statecore.queries.job.heads import Heads
from statecore.queries.job.new_checkpoint import is_copied, new_checkpoint
from statecore.queries.reading.checkpoint import newest_batches
from statecore.storage import open_store
from statecore.storage.urls import normal_url
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


def resumed(catalog: Catalog, job: JobRecord, generation: int) -> JobRecord:
    """Return the job with the checkpoint that its query resumes from, which is the newest head now.

    It is one with the newest state and the job's number of state partitions. If none is there, as after a rollback of a
    rescale whose query has begun a batch, the newest state is copied, with proof: an older checkpoint would repeat
    batch numbers with other rows.

    Args:
        catalog: Gets the selected checkpoint.
        job: The job.
        generation: The generation that is about to start the query.

    Raises:
        CommitError: A newer generation runs the job; it selects the checkpoint.
        NotProvenError: The copy failed.
        CheckpointError: A checkpoint or a head cannot be read, or another process has appended a head meanwhile.
        StorageError: The storage fails.

    """
    assert job.checkpoint is not None
    heads = Heads(job.store)
    head = heads.newest or heads.append(job.checkpoint, "registered", generation)
    fitting = heads.fitting(job.parallelism)
    if fitting is not None:
        checkpoint, reason = fitting.checkpoint, f"no batch was begun after head {fitting.number}"
    else:
        source = heads.with_newest_state()[0].checkpoint
        _, logged = newest_batches(open_store(normal_url(source)))
        # An earlier copy of fewer batches has another name.
        checkpoint = new_checkpoint(job, f"head-{head.number + 1}-at-{logged}-p{job.parallelism}")
        reason = f"copied from {source}"
        log.info("%s has another number of state partitions; copying it to %s", source, checkpoint)
        if not is_copied(source, checkpoint):
            _copy(job, source, checkpoint)
    newest = catalog.generations.newest(job.name)
    if newest is None or newest.generation != generation or newest.ended:
        raise CommitError(
            f"generation {generation} of job {job.name!r} stopped before its first batch: a newer generation runs the "
            "job"
        )
    head = heads.append(checkpoint, reason, generation, is_base=fitting is not None and fitting.is_base)
    heads.mark_started(head)
    log.info("the query resumes from %s", checkpoint)
    if checkpoint != job.checkpoint:
        return catalog.jobs.set_desired(job.name, checkpoint=checkpoint)
    return job


def _copy(job: JobRecord, source: str, target: str) -> None:
    arguments = ("--checkpoint", source, "--target", target, "--partitions", str(job.parallelism))
    conf = {key: value for key, value in job.conf.items() if key.startswith(_CONF)}
    with workspace("copy") as folder:
        # The copy is made on this machine, whatever master this driver's environment names.
        command = spark_submit(
            "local[*]", f"{job.name} to {job.parallelism}", conf, folder / "spark.properties", _PROGRAM, *arguments
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
            f"found that {source} cannot be copied to {job.parallelism} state partitions: "
            f"{_last_words(done.stdout)}; expected a copy, from which job {job.name!r} resumes; read the driver's log"
        )


def _last_words(output: str) -> str:
    """Return a program's error message, else the last line of its output outside a stack trace."""
    told = [line for line in output.splitlines() if line.strip() and not line[0].isspace()]
    errors = [line.removeprefix(_ERROR) for line in told if line.startswith(_ERROR)]
    return (errors or [line.lstrip(": ") for line in told] or ["no output"])[-1]
