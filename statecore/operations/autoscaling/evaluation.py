"""Evaluates policies: reads figures from the catalog, decides, and records the decision in the catalog.

The evaluation keeps no memory: the catalog holds the decisions and the time since which more was needed. Several
processes may evaluate the same job; each decision is recorded once.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from statecore.catalog import Catalog, DecisionRecord, Diagnosed, Policies, PolicyRecord
from statecore.operations.autoscaling.figures import figures_of
from statecore.policy import (
    BOTTLENECKS,
    Decision,
    Diagnosis,
    Figures,
    PolicyMemory,
    decide,
    policy_settings,
)

log = logging.getLogger(__name__)
# After a longer gap between evaluations, the policy's memory is out of date.
_MEMORY_VALID_MS = 300_000

ANNOUNCE_EVERY_MS = 120_000
"""An open decision is announced again after this time: the process that announced it may have died."""

LAPSES_AFTER_MS = 600_000
"""An open decision with figures older than this fails."""


def evaluate(catalog: Catalog, policy: PolicyRecord, now_ms: int) -> DecisionRecord | None:
    """Evaluate a policy that was just read; return the decision if this call recorded one.

    A policy that only observes records what it would do, once for each change of parallelism; nothing carries it out.

    Each decision is logged. An evaluation without a decision is logged only if its diagnosis or its kind of reason has
    changed.

    Raises:
        ConfigurationError: The policy's settings do not fit.
        UnknownJobError: The job is not registered.

    """
    settings = policy_settings(policy.settings)
    figures = figures_of(catalog, policy.job, now_ms)
    before = _memory(policy, now_ms)
    made = decide(figures, settings, before)
    memory = dataclasses.asdict(made.memory)
    diagnosis = diagnosed(policy, made)
    if made.action == "stay":
        if catalog.policies.save_memory(policy, memory, made.reason, diagnosis):
            _log(policy, diagnosis, made.reason, is_news=made.memory.held != before.held)
        return None
    reason = f"{'would scale' if settings.observe else 'scale'} {made.action}: {made.reason}"
    if settings.observe and _is_told(catalog.policies, policy.job, figures.parallelism, made.parallelism):
        if catalog.policies.save_memory(policy, memory | {"decided_ms": before.decided_ms}, reason, diagnosis):
            _log(policy, diagnosis, reason)
        return None
    recorded = catalog.policies.record_decision(
        policy,
        memory,
        from_parallelism=figures.parallelism,
        to_parallelism=made.parallelism,
        from_workers=figures.workers,
        to_workers=made.workers,
        method=settings.method,
        reason=reason,
        figures=_summary(figures),
        diagnosis=diagnosis,
        state="observed" if settings.observe else "open",
    )
    if recorded is not None:
        _log(policy, diagnosis, decision_words(recorded), is_news=True)
    return recorded


def _log(policy: PolicyRecord, diagnosis: Diagnosed | None, text: str, *, is_news: bool = False) -> None:
    """Log the result of an evaluation, if it is news or the diagnosis has changed."""
    if diagnosis is not None and diagnosis.name != policy.diagnosis:
        log.info("Job %s: %s, before %s: %s", policy.job, diagnosis.name, policy.diagnosis, text)
    elif is_news:
        log.info("Job %s: %s", policy.job, text)


def diagnosis_of(policy: PolicyRecord, figures: Figures) -> Diagnosis | None:
    """Return a policy's diagnosis of its job, by its memory and the figures; None while too little is measured.

    Raises:
        ConfigurationError: The policy's settings do not fit.

    """
    return decide(figures, policy_settings(policy.settings), _memory(policy, figures.at_ms)).diagnosis


def diagnosed(policy: PolicyRecord, made: Decision) -> Diagnosed | None:
    """Return the diagnosis to record; None to keep the recorded one, while too little is measured."""
    if made.diagnosis is None:
        return None
    now, before = made.diagnosis.name.value, policy.diagnosis
    # Two bottlenecks of about the same size take turns as the larger one; report them as one.
    lasts = now == before or {now, before} <= BOTTLENECKS
    return Diagnosed(now, policy.diagnosed_ms if lasts else None)


def _is_told(policies: Policies, job: str, from_parallelism: int, to_parallelism: int) -> bool:
    """Return whether the newest decision was to observe the same change."""
    change = (from_parallelism, to_parallelism)
    newest = policies.decisions(job, limit=1)
    return any(each.state == "observed" and (each.from_parallelism, each.to_parallelism) == change for each in newest)


def _memory(policy: PolicyRecord, now_ms: int) -> PolicyMemory:
    try:
        memory = msgspec.convert(policy.memory, PolicyMemory)
    except msgspec.ValidationError:
        # Another release wrote it; start a new one.
        return PolicyMemory()
    if policy.looked_ms is not None and now_ms - policy.looked_ms > _MEMORY_VALID_MS:
        return PolicyMemory(
            decided_ms=memory.decided_ms,
            parallelism=memory.parallelism,
            effects=memory.effects,
            version=memory.version,
            chosen=memory.chosen,
            limit=memory.limit,
        )
    return memory


def decisions_to_announce(policies: Policies, now_ms: int) -> Iterator[DecisionRecord]:
    """Yield the open decisions to announce again, each to one caller; fail those that are too old."""
    for decision in policies.open_decisions():
        if now_ms - decision.decided_ms >= LAPSES_AFTER_MS:
            policies.end_decision(
                decision.id,
                "failed",
                f"no run carried it out within {LAPSES_AFTER_MS // 60_000} minutes; expected the DAG autoscale "
                "to start one; check whether it is paused, and whether Airflow's scheduler runs",
            )
        elif now_ms - decision.announced_ms >= ANNOUNCE_EVERY_MS and policies.reannounce(decision):
            yield decision


def _summary(figures: Figures) -> dict[str, Any]:
    """Return the figures without the epochs behind them."""
    left_out = {"job", "hindrance", "epochs"}
    return {name: value for name, value in dataclasses.asdict(figures).items() if name not in left_out}


def decision_words(decision: DecisionRecord) -> str:
    """Return the action, or the observed one, its reason, and both sizes, in words."""
    sizes = f"parallelism {decision.from_parallelism} → {decision.to_parallelism}"
    if decision.to_workers != decision.from_workers:
        sizes += f", workers {decision.from_workers} → {decision.to_workers}"
    return f"{decision.reason} ({sizes})"
