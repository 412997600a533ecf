"""Settles, before a query starts, which checkpoint it goes on from after a rollback."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from statecore.catalog import Catalog, JobRecord
from statecore.errors import CommitError, NotProvenError
from statecore.queries.in_force import checkpoint_in_force
from statecore.queries.targets import is_copied, new_checkpoint

log = logging.getLogger(__name__)

_PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "rescale.py"
# They lead a child to this driver's JVM, whose executors may be on other machines; the copy is made on this one.
_OF_THIS_DRIVER = "PYSPARK_"
_KEPT = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def settled(catalog: Catalog, job: JobRecord, generation: int) -> JobRecord:
    """Return the job with the checkpoint that its query goes on from.

    If the query had begun in the checkpoint that a rollback has left, that one is copied back to the job's number of
    state partitions, with proof: the older one would give sinks other rows under the numbers of batches they have.

    Args:
        catalog: Records what was settled.
        job: The job.
        generation: The generation that is about to start the query.

    Raises:
        CommitError: A newer generation runs the job, which settles it.
        NotProvenError: The copy back failed.
        CheckpointError: A checkpoint cannot be read.
        StorageError: The storage fails.

    """
    if job.left_checkpoint is None:
        return job
    source = checkpoint_in_force(job)
    if source == job.checkpoint:
        log.info("nothing was begun in %s; the query goes on from %s", job.left_checkpoint, source)
        return catalog.set_desired(job.name, checkpoint=source)
    target = new_checkpoint(job, f"{source.rpartition('/')[2]}-back-to-{job.parallelism}")
    log.info("batches were begun in %s; copying it to %s, %d partitions", source, target, job.parallelism)
    if not is_copied(source, target):
        _copy(job, source, target)
    newest = catalog.newest_generation(job.name)
    if newest is None or newest.generation != generation or newest.ended:
        raise CommitError(
            f"found a newer generation of job {job.name!r}; expected generation {generation} to be the newest; this "
            "driver leaves it to that one"
        )
    return catalog.set_desired(job.name, checkpoint=target)


def _copy(job: JobRecord, source: str, target: str) -> None:
    command = [sys.executable, str(_PROGRAM), "--checkpoint", source, "--target", target]
    command += ["--partitions", str(job.parallelism)]
    environment = {
        name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_OF_THIS_DRIVER)
    }
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    for line in done.stdout.splitlines():
        log.info("%s", line)
    if done.returncode:
        raise NotProvenError(
            f"found that {source} cannot be copied back to {job.parallelism} state partitions: "
            f"{(done.stdout.strip().splitlines() or ['no output'])[-1]}; expected a copy, with which job {job.name!r} "
            "goes on after its rollback; see the driver's log"
        )
