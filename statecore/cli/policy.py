"""``policy set``, ``policy show`` and ``policy decisions``."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from statecore.catalog import Catalog, DecisionRecord
from statecore.cli.ladder import drawing
from statecore.cli.options import AsJson, CatalogUrl, JobName
from statecore.cli.output import NOTHING, console, facts, print_json, table, utc
from statecore.operations.autoscaling.evaluation import diagnosis_of
from statecore.operations.autoscaling.figures import figures_of
from statecore.operations.kinds import kind_of
from statecore.policy import BLOCKS_AFTER, blocked_words, estimate_drain, ladder, policy_settings

_OBSERVE = (
    "Observe: decisions are recorded for `policy show` and `policy decisions`, and not carried out. Initially act."
)
_ALIGN = (
    "Align: only sizes at which the busiest subtask has fewer key groups, or reads fewer partitions, than at any "
    "smaller size, and about as many as the others. Initially all sizes."
)
_FREEZE = (
    "A window in which the policy changes nothing: a cron expression of five fields and a duration, such as "
    "'0 8 * * 1-5 for 10h'. Repeatable; replaces all windows; '' removes them. Initially none."
)
_AT_LEAST = (
    "A parallelism that is needed at least in a window, such as '0 9 * * 1 for 2h: 8'. Repeatable; replaces all; '' "
    "removes them. Initially none."
)
_OFF = (
    "Off: the DAG autoscale makes no decisions; the limits stay, and catch_up respects them. On also unblocks a policy "
    "whose rescales failed. Initially on."
)


def set_policy(
    name: JobName,
    catalog: CatalogUrl,
    max_parallelism: Annotated[
        int | None, typer.Option(min=1, help="Upper limit of parallelism; required the first time.")
    ] = None,
    min_parallelism: Annotated[int | None, typer.Option(min=1, help="Lower limit of parallelism. Initially 1.")] = None,
    subtasks_per_worker: Annotated[
        int | None,
        typer.Option(min=1, help="Subtasks per worker: a job with a cluster is scaled by whole workers. Initially 1."),
    ] = None,
    target_utilisation: Annotated[
        float | None, typer.Option(help="Target ratio of arrival rate to processing capacity. Initially 0.85.")
    ] = None,
    catch_up: Annotated[
        float | None, typer.Option(help="Seconds within which a backlog should be drained. Initially 600.")
    ] = None,
    max_lag: Annotated[
        float | None,
        typer.Option(
            help="Seconds that a row may wait; longer, for a while or again and again, scales out. Initially no limit."
        ),
    ] = None,
    hysteresis: Annotated[
        float | None,
        typer.Option(help="Relative difference between needed and current size that is ignored. Initially 0.1."),
    ] = None,
    scale_out_after: Annotated[
        float | None, typer.Option(help="Seconds for which a larger size must be needed. Initially 60.")
    ] = None,
    scale_in_after: Annotated[
        float | None, typer.Option(help="Seconds for which a smaller size must be enough. Initially 300.")
    ] = None,
    cooldown: Annotated[
        float | None,
        typer.Option(help="Seconds without a decision after a rescale has ended; failures double it. Initially 300."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="live or by_reference, initially live; rewrite for a query of Spark's own.")
    ] = None,
    max_step: Annotated[
        int | None,
        typer.Option(min=1, help="Largest change of the parallelism in one rescale. Initially no limit."),
    ] = None,
    max_rescales_a_day: Annotated[
        int | None, typer.Option(min=1, help="Most rescales by this policy within 24 hours. Initially no limit.")
    ] = None,
    align: Annotated[bool | None, typer.Option("--align/--no-align", help=_ALIGN)] = None,
    freeze: Annotated[list[str] | None, typer.Option(metavar="WINDOW", help=_FREEZE)] = None,
    at_least: Annotated[list[str] | None, typer.Option(metavar="WINDOW: N", help=_AT_LEAST)] = None,
    time_zone: Annotated[
        str | None, typer.Option(help="Time zone of the windows, such as Europe/Berlin. Initially UTC.")
    ] = None,
    observe: Annotated[bool | None, typer.Option("--observe/--act", help=_OBSERVE)] = None,
    on: Annotated[bool | None, typer.Option("--on/--off", help=_OFF)] = None,
    as_json: AsJson = False,
) -> None:
    """Set or change the policy by which the DAG autoscale sizes a job; omitted options keep their values."""
    given = {
        "max_parallelism": max_parallelism,
        "min_parallelism": min_parallelism,
        "subtasks_per_worker": subtasks_per_worker,
        "target_utilisation": target_utilisation,
        "catch_up_s": catch_up,
        "max_lag_s": max_lag,
        "hysteresis": hysteresis,
        "scale_out_after_s": scale_out_after,
        "scale_in_after_s": scale_in_after,
        "cooldown_s": cooldown,
        "method": method,
        "max_step": max_step,
        "max_rescales_a_day": max_rescales_a_day,
        "align": align,
        "freeze": _several(freeze),
        "at_least": _several(at_least),
        "time_zone": time_zone,
        "observe": observe,
    }
    with Catalog(catalog) as opened:
        before = opened.policies.find(name)
        known = kind_of(opened.jobs.get(name)).policy_method(method) | ({} if before is None else before.settings)
        settings = policy_settings({**known, **{key: value for key, value in given.items() if value is not None}})
        enabled = (before is None or before.enabled) if on is None else on
        made = opened.policies.set(name, msgspec.to_builtins(settings), enabled=enabled)
    if as_json:
        print_json({"job": name, "enabled": enabled, "settings": settings})
        return
    print(f"{name}: policy {made.state}, parallelism {settings.min_parallelism} to {settings.max_parallelism}")


def show_policy(name: JobName, catalog: CatalogUrl, as_json: AsJson = False) -> None:
    """Print a job's policy: limits, last finding, diagnosis, time to drain the backlog, throughput of each size."""
    with Catalog(catalog) as opened:
        opened.jobs.get(name)
        policy = opened.policies.find(name)
        figures = figures_of(opened, name, opened.now_ms())
    estimate = estimate_drain(figures, figures.parallelism)
    settings = None if policy is None else policy_settings(policy.settings)
    diagnosis = None if policy is None else diagnosis_of(policy, figures)
    stands = None if settings is None else ladder(figures, settings)
    if as_json:
        blocked = figures.failures >= BLOCKS_AFTER
        # With the defaults of settings that are newer than the policy.
        if policy is not None:
            policy = replace(policy, settings=msgspec.to_builtins(settings))
        told = {"policy": policy, "failures": figures.failures, "blocked": blocked}
        print_json({**told, "diagnosis": diagnosis, "drain": estimate, "ladder": stands})
        return
    made = facts()
    if policy is None:
        made.add_row("policy", f"none; set one with `statecore policy set {escape(name)} --max-parallelism …`")
    else:
        made.add_row("policy", "on" if policy.enabled else "off")
        if figures.failures >= BLOCKS_AFTER:
            made.add_row("", escape(f"blocked: {'; '.join(blocked_words(name, figures.failures, figures.failure))}"))
        for key, value in msgspec.to_builtins(settings).items():
            made.add_row(key.removesuffix("_s").replace("_", " "), _setting(key, value))
        looked = "never; is the DAG autoscale on?" if policy.looked_ms is None else f"{utc(policy.looked_ms)} UTC"
        made.add_row("last evaluated", looked)
        made.add_row("found", escape(policy.finding or NOTHING))
        made.add_row("diagnosis", NOTHING if diagnosis is None else escape(f"{diagnosis.name}: {diagnosis.text}"))
    drained = NOTHING if estimate.seconds is None else str(timedelta(seconds=round(estimate.seconds)))
    made.add_row("backlog drained in", f"{'never' if estimate.drains is False else drained} ({estimate.based_on})")
    console().print(made)
    if stands is not None:
        console().print(drawing(stands))


def list_decisions(
    name: JobName,
    catalog: CatalogUrl,
    limit: Annotated[int, typer.Option(min=1, help="Number of decisions, the newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Print the decisions of a job's policy, newest first: time, reason and outcome."""
    with Catalog(catalog) as opened:
        opened.jobs.get(name)
        decisions = opened.policies.decisions(name, limit=limit)
    if as_json:
        print_json(decisions)
        return
    made = table("decided (UTC)", "parallelism", "workers", "state", "reason", "outcome", "run")
    for each in decisions:
        made.add_row(utc(each.decided_ms), *_sizes(each), each.state, *map(escape, _words(each)))
    console().print(made)


def _several(values: list[str] | None) -> list[str] | None:
    """Return the values of a repeatable option; an empty value removes the earlier ones."""
    return None if values is None else [value for value in values if value.strip()]


def _setting(key: str, value: str | float | bool | tuple[str, ...] | None) -> str:
    if value is None:
        return "no limit"
    if isinstance(value, tuple):
        return escape("\n".join(value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:g}{' s' if key.endswith('_s') else ''}"


def _sizes(decision: DecisionRecord) -> tuple[str, str]:
    workers = NOTHING if decision.to_workers is None else f"{decision.from_workers} -> {decision.to_workers}"
    return f"{decision.from_parallelism} -> {decision.to_parallelism}", workers


def _words(decision: DecisionRecord) -> tuple[str, str, str]:
    return decision.reason, decision.outcome or NOTHING, decision.run_id or NOTHING
