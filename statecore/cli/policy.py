"""``policy set``, ``policy show`` and ``policy decisions``."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from statecore.catalog import Catalog, DecisionRecord, SystemClock
from statecore.cli.options import AsJson, CatalogUrl, JobName
from statecore.cli.output import NOTHING, console, facts, print_json, table, utc
from statecore.operations.autoscaling import figures_of
from statecore.policy import estimate_drain, policy_settings

_OFF = "Off, the DAG autoscale decides nothing; the limits stay, and catch_up heeds them. At first on."


def set_policy(
    name: JobName,
    catalog: CatalogUrl,
    max_parallelism: Annotated[
        int | None, typer.Option(min=1, help="Never more subtasks than this; to be given the first time.")
    ] = None,
    min_parallelism: Annotated[int | None, typer.Option(min=1, help="Never fewer. At first 1.")] = None,
    subtasks_per_worker: Annotated[
        int | None, typer.Option(min=1, help="A job with a cluster moves by whole workers of so many. At first 1.")
    ] = None,
    target_utilisation: Annotated[
        float | None, typer.Option(help="Part of what it could process that should arrive. At first 0.7.")
    ] = None,
    catch_up: Annotated[
        float | None, typer.Option(help="Seconds in which a backlog should be drained. At first 900.")
    ] = None,
    max_lag: Annotated[
        float | None, typer.Option(help="Event-time lag in seconds beyond which it is given more. At first no limit.")
    ] = None,
    hysteresis: Annotated[
        float | None, typer.Option(help="How far, as a part, a need must lie beyond what there is. At first 0.1.")
    ] = None,
    scale_out_after: Annotated[
        float | None, typer.Option(help="Seconds for which more must have been needed. At first 30.")
    ] = None,
    scale_in_after: Annotated[
        float | None, typer.Option(help="Seconds for which less must have been enough. At first 600.")
    ] = None,
    cooldown: Annotated[
        float | None, typer.Option(help="Seconds without a decision after a rescale. At first 300.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="live or by_reference. At first live.")] = None,
    on: Annotated[bool | None, typer.Option("--on/--off", help=_OFF)] = None,
    as_json: AsJson = False,
) -> None:
    """Give a job a policy, by which the DAG autoscale sizes it, or change it; what is not given stays."""
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
    }
    with Catalog(catalog) as opened:
        opened.job(name)
        before = opened.policy(name)
        known = {} if before is None else before.settings
        settings = policy_settings({**known, **{key: value for key, value in given.items() if value is not None}})
        enabled = (before is None or before.enabled) if on is None else on
        opened.set_policy(name, msgspec.to_builtins(settings), enabled=enabled)
    if as_json:
        print_json({"job": name, "enabled": enabled, "settings": settings})
        return
    state = "on" if enabled else "off"
    print(f"{name}: policy {state}, parallelism {settings.min_parallelism} to {settings.max_parallelism}")


def show_policy(name: JobName, catalog: CatalogUrl, as_json: AsJson = False) -> None:
    """Print a job's policy: its limits, what it found when it last looked, and how long the backlog takes to drain."""
    with Catalog(catalog) as opened:
        opened.job(name)
        policy = opened.policy(name)
        figures = figures_of(opened, name, SystemClock().now_ms())
    estimate = estimate_drain(figures, figures.parallelism)
    if as_json:
        print_json({"policy": policy, "drain": estimate})
        return
    made = facts()
    if policy is None:
        made.add_row("policy", f"none; `policy set {escape(name)} --max-parallelism …` makes one")
    else:
        made.add_row("policy", "on" if policy.enabled else "off")
        for key, value in msgspec.to_builtins(policy_settings(policy.settings)).items():
            made.add_row(key.removesuffix("_s").replace("_", " "), _setting(key, value))
        looked = "never; is the DAG autoscale on?" if policy.looked_ms is None else f"{utc(policy.looked_ms)} UTC"
        made.add_row("last look", looked)
        made.add_row("found", escape(policy.finding or NOTHING))
    drained = NOTHING if estimate.seconds is None else str(timedelta(seconds=round(estimate.seconds)))
    made.add_row("backlog drained in", f"{'never' if estimate.drains is False else drained} ({estimate.based_on})")
    console().print(made)


def list_decisions(
    name: JobName,
    catalog: CatalogUrl,
    limit: Annotated[int, typer.Option(min=1, help="At most the newest so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Print what a job's policy has decided, newest first: when, why, and what came of it."""
    with Catalog(catalog) as opened:
        opened.job(name)
        found = opened.decisions(name, limit=limit)
    if as_json:
        print_json(found)
        return
    made = table("decided (UTC)", "parallelism", "workers", "state", "reason", "outcome", "run")
    for each in found:
        made.add_row(utc(each.decided_ms), *_sizes(each), each.state, *map(escape, _words(each)))
    console().print(made)


def _setting(key: str, value: str | float | None) -> str:
    if value is None:
        return "no limit"
    return value if isinstance(value, str) else f"{value:g}{' s' if key.endswith('_s') else ''}"


def _sizes(decision: DecisionRecord) -> tuple[str, str]:
    workers = NOTHING if decision.to_workers is None else f"{decision.from_workers} -> {decision.to_workers}"
    return f"{decision.from_parallelism} -> {decision.to_parallelism}", workers


def _words(decision: DecisionRecord) -> tuple[str, str, str]:
    return decision.reason, decision.outcome or NOTHING, decision.run_id or NOTHING
