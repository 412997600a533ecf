"""spark-submit entry point: tries a job file; the answer, also a refusal, is a file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from statecore.blame import blame, job_file_line
from statecore.errors import StatecoreError
from statecore.model.job_parts import Trial
from statecore.runtime.driver.generation import job_session
from statecore.runtime.job import load_job
from statecore.runtime.job.places import placed
from statecore.runtime.trial import try_job
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.manifest import Manifest


def main() -> None:
    """Parse arguments, try the job, write the answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job-file", required=True, type=Path, help="the job file")
    parser.add_argument("--settings", required=True, type=Path, help="JSON file with the job's settings")
    parser.add_argument("--savepoint", help="savepoint whose state the job takes up: its folder or its manifest")
    parser.add_argument("--store", help="in its place, the job's store; its newest epoch counts")
    parser.add_argument("--scratch", required=True, type=Path, help="empty folder")
    parser.add_argument("--answer", required=True, type=Path, help="file to write")
    arguments = parser.parse_args()
    spark = job_session("statecore-trial")
    spark.sparkContext.setLogLevel("OFF")
    try:
        answer = _tried(spark, arguments)
    finally:
        spark.stop()
    arguments.answer.write_bytes(msgspec.json.encode(answer))


def _tried(spark: SparkSession, arguments: argparse.Namespace) -> Trial:
    job_file: Path = arguments.job_file
    settings: Mapping[str, str] = json.loads(arguments.settings.read_text())
    try:
        restored = _restored(arguments.savepoint, arguments.store)
        parts = try_job(spark, load_job(job_file, settings), arguments.scratch, restored)
    # Also what the job file raises.
    except Exception as error:
        return Trial(error=_told(error, str(job_file)))
    epoch = None if restored is None else f"epoch {restored.epoch} of job {restored.job!r}"
    return Trial(parts=tuple(parts), epoch=epoch)


def _restored(savepoint: str | None, store: str | None) -> Manifest | None:
    if savepoint is not None:
        return open_savepoint(savepoint).manifest
    return None if store is None else CheckpointStore.at(store).newest()


def _told(error: Exception, job_file: str) -> str:
    """Return an error with the job file's line, unless it has one."""
    if not isinstance(error, StatecoreError):
        return blame(error, {job_file})
    return placed(str(error), job_file_line(error, {job_file}))


if __name__ == "__main__":
    main()
