"""A policy's decision in one sentence, for logs and messages."""

from __future__ import annotations

from statecore.catalog import DecisionRecord


def decision_words(decision: DecisionRecord) -> str:
    """Return what is done, or would be, why, and from which size to which."""
    sizes = f"parallelism {decision.from_parallelism} → {decision.to_parallelism}"
    if decision.to_workers != decision.from_workers:
        sizes += f", workers {decision.from_workers} → {decision.to_workers}"
    return f"{decision.reason} ({sizes})"
