"""``register``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from statecore.catalog import Catalog, Generations, JobRecord
from statecore.cli.lease import alone
from statecore.cli.options import AsJson, CatalogUrl, JobName, absolute, pairs
from statecore.cli.output import note, print_json, telling
from statecore.cluster.spark_submit import require_master
from statecore.errors import ConfigurationError
from statecore.operations.job_file_check import check_job_file
from statecore.operations.kinds import JobKind, SparkQuery, StatecoreJob, kind_of
from statecore.operations.trial import TriedFile, try_job_file, try_query_file
from statecore.queries.job.current_checkpoint import current_checkpoint
from statecore.queries.job.registration import partitions_of
from statecore.queries.job.start import adopt
from statecore.queries.reading.checkpoint import newest_batches
from statecore.queries.reading.files import canonical_url
from statecore.snapshot.job_files import keep_job_file, read_job_file, read_source
from statecore.snapshot.settings import DriverSettings
from statecore.storage import open_store, require_conditional_puts
from statecore.storage.urls import normal_url

_NEW = "Required for a new job."
_PAIRS = "Others stay; key= removes one."


def register_job(
    name: JobName,
    catalog: CatalogUrl,
    artifact: Annotated[
        str | None, typer.Option(help=f"Job file that defines build(job): a path or a URL. {_NEW}")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            help="In place of --artifact, for a query of Spark's own: a query file that defines build(spark, settings)."
        ),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="The checkpointLocation of that query: a path or a URL; new, or as it is.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help=f"Where checkpoints and savepoints go: a path or a URL. {_NEW}")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help=f"Spark master, e.g. spark://host:7077 or local[2]. {_NEW}")
    ] = None,
    parallelism: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Number of subtasks; of a query, of state partitions, by default as in its checkpoint. {_NEW}"
        ),
    ] = None,
    max_parallelism: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of key groups; only a rewritten savepoint changes it. "
            "Default: unchanged; for a new job, Flink's default.",
        ),
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Cluster that is resized with the job; empty for none.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(help=f"key=value, in the job file as job.settings; repeatable. {_PAIRS}"),
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(help=f"key=value, Spark configuration; repeatable. {_PAIRS}")
    ] = None,
    tried: Annotated[
        bool,
        typer.Option(
            "--try",
            help="Also try it on Spark: build its sources and run one empty epoch, with the state that it has; restart "
            "a query on a clone of its checkpoint.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a job file and add the job to the catalog, or change its definition; omitted options keep their values.

    The job file is copied into the job's store, and drivers run the copy: to change it, register it again.
    A running driver keeps the old definition; the next start uses the new one.
    """
    confs, settings = pairs("--conf", conf), pairs("--setting", setting)
    if master is not None:
        require_master(master)
    asked_kind = StatecoreJob if query is None else SparkQuery
    artifact = _program(artifact, query, max_parallelism)
    asked = {
        "artifact": artifact if artifact is None or "://" in artifact else str(Path(artifact).resolve()),
        "store": None if store is None else absolute(store),
        "master_url": master,
        "parallelism": parallelism,
        "max_parallelism": max_parallelism,
        "checkpoint": None if checkpoint is None else canonical_url(absolute(checkpoint)),
    }
    given: dict[str, Any] = {field: value for field, value in asked.items() if value is not None}
    with Catalog(catalog) as opened:
        opened.create_schema(only_if_new=True)
        if name not in opened.jobs.names():
            definition = _complete(name, given, asked_kind)
            DriverSettings.from_conf(_with({}, confs))
            new = read_source(definition["artifact"])
            _check(definition["artifact"], new, _with({}, settings), asked_kind)
            if tried:
                file = TriedFile(definition["artifact"], new, _with({}, settings), _with({}, confs))
                _try(file, definition["store"], definition.get("checkpoint"))
            require_conditional_puts(open_store(definition["store"]))
            _adopt(name, definition, 0)
            job = opened.jobs.register(
                name,
                **definition,
                artifact_sha256=_kept(definition, new),
                cluster=cluster or None,
                conf=_with({}, confs),
                settings=_with({}, settings),
            )
        else:
            known = opened.jobs.get(name)
            kind = kind_of(known)
            if artifact is not None and not isinstance(kind, asked_kind):
                raise typer.BadParameter(_other_option(kind))
            source = _registered(known) if artifact is None else read_source(given["artifact"])
            if artifact is not None or settings or tried:
                path = given.get("artifact", known.artifact)
                source_now = read_source(path) if source is None else source
                file = TriedFile(path, source_now, _with(known.settings, settings), _with(known.conf, confs))
                _check(path, source_now, file.settings, type(kind))
                if tried:
                    ours = current_checkpoint(known) if known.is_query else None
                    _try(file, given.get("store", known.store), given.get("checkpoint", ours))
            require_conditional_puts(open_store(given.get("store", known.store)))
            with alone(opened.leases, name) as owner:
                known = opened.jobs.get(name)
                _require_free_of(opened.generations, known, given)
                DriverSettings.from_conf(_with(known.conf, confs))
                definition = {field: getattr(known, field) for field in asked} | _of_checkpoint(known, given)
                if "checkpoint" in given:
                    newest = opened.generations.newest(name)
                    _adopt(name, definition, 0 if newest is None else newest.generation)
                job = opened.jobs.register(
                    name,
                    **definition,
                    artifact_sha256=_kept(definition, source),
                    cluster=known.cluster if cluster is None else cluster or None,
                    conf=_with(known.conf, confs),
                    settings=_with(known.settings, settings),
                    owner=owner,
                )
    if as_json:
        print_json({"job": job.name, "parallelism": job.parallelism, "max_parallelism": job.max_parallelism})
        return
    print(f"registered {job.name}: {kind_of(job).size(str(job.parallelism))}")


def _program(artifact: str | None, query: str | None, max_parallelism: int | None) -> str | None:
    """Return the job file or the query file; raise BadParameter for both."""
    if artifact is not None and query is not None:
        raise typer.BadParameter(
            "found --artifact and --query; expected --artifact for a job of statecore, or --query for a query of "
            "Spark's own"
        )
    if query is not None and max_parallelism is not None:
        raise typer.BadParameter("found --max-parallelism; expected none, because a query of Spark's has no key groups")
    return artifact if query is None else query


def _other_option(known: JobKind) -> str:
    option = known.options["artifact"]
    return f"found that {known.job.name!r} is {known.title}; expected its file with {option}; or register another job"


def _require_free_of(generations: Generations, known: JobRecord, given: dict[str, Any]) -> None:
    """Refuse another checkpoint for a running query: its driver would continue to write to the old one."""
    if given.get("checkpoint") in (None, known.checkpoint):
        return
    if known.desired_state == "running" or generations.is_alive(generations.newest(known.name)):
        raise ConfigurationError(
            f"found {known.name} running, or about to run, on {known.checkpoint}; expected it stopped, because its "
            f"driver continues to write there; run `statecore stop {known.name}` first"
        )


def _adopt(name: str, definition: Mapping[str, Any], generation: int) -> None:
    """Let a query resume from a checkpoint, unless it has begun batches that the checkpoint lacks."""
    if (checkpoint := definition.get("checkpoint")) is not None:
        adopt(name, definition["store"], checkpoint, generation)


def _of_checkpoint(known: JobRecord, given: dict[str, Any]) -> dict[str, Any]:
    """Return the given fields, with the parallelism of a query's checkpoint."""
    if known.checkpoint is None:
        return given
    checkpoint: str = given.get("checkpoint") or known.checkpoint
    partitions = partitions_of(checkpoint, given.get("parallelism"))
    return given if partitions is None else {**given, "parallelism": partitions}


def _complete(name: str, given: dict[str, Any], kind: type[JobKind]) -> dict[str, Any]:
    """Return the definition of a new job; raise BadParameter for a missing option."""
    needed = {**kind.options, "store": "--store", "master_url": "--master", "parallelism": "--parallelism"}
    if "checkpoint" in given and "checkpoint" not in needed:
        raise typer.BadParameter(
            "found --checkpoint without --query; expected it for a query of Spark's own; add --query, or leave it out"
        )
    if {"checkpoint", "store"} <= given.keys():
        partitions = partitions_of(given["checkpoint"], given.get("parallelism"))
        given = given if partitions is None else {**given, "parallelism": partitions}
    missing = [option for field, option in needed.items() if field not in given]
    if missing:
        raise typer.BadParameter(
            f"found no {', '.join(missing)} for {name!r}, which is not registered yet; expected them for a new job; "
            "add them, or correct the name"
        )
    return {"max_parallelism": kind.max_parallelism(given["parallelism"]), **given}


def _registered(job: JobRecord) -> bytes | None:
    """Return the registered job file; None if a program registered the job without a copy of it."""
    if job.artifact_sha256 is None:
        return None
    return read_job_file(open_store(job.store), job.artifact, job.artifact_sha256)


def _kept(definition: Mapping[str, Any], source: bytes | None) -> str | None:
    """Copy the job file into the job's store, and return its SHA-256."""
    return None if source is None else keep_job_file(open_store(definition["store"]), definition["artifact"], source)


def _check(artifact: str, source: bytes, settings: Mapping[str, str], kind: type[JobKind]) -> None:
    """Check a job file or query file before it is registered; print a note if a check was impossible here."""
    with telling("checking the job file"):
        unchecked = check_job_file(artifact, source, settings, kind.file)
    if unchecked is not None:
        note(f"note: {unchecked}; if the supervisor's machine lacks it too, drivers will fail")


def _try(file: TriedFile, store: str, checkpoint: str | None) -> None:
    """Try a job file or a query file on Spark, with the state that its job has."""
    with telling("trying it on Spark"):
        if checkpoint is None:
            try_job_file(file, store=store)
        elif newest_batches(open_store(normal_url(checkpoint)))[0] is not None:
            try_query_file(file, checkpoint)
        else:
            note(f"note: {checkpoint} has no batch yet, so there is nothing to try the query on")


def _with(known: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the known pairs updated with the given ones; an empty value removes its key."""
    return {key: value for key, value in {**known, **given}.items() if given.get(key) != ""}
