"""Diagnoses a job: its bottleneck, and whether a larger cluster would help."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from statecore.policy.arrivals import TREND_MS
from statecore.policy.capacity import foreseen, throughput
from statecore.policy.figures import Figures
from statecore.policy.needs import FULL_MEMORY, Needs, memory_share
from statecore.policy.scale_in_floors import for_arrivals, has_fallen, just_now, kept
from statecore.policy.settings import PolicySettings

_CRASHES = 2
# If epochs run for less than this share of the time while rows wait, something other than capacity limits the job.
_HELD_BACK = 0.5
# A key with at least this share of the busiest subtask's work is what makes it the busiest.
_OF_THE_BUSIEST = 0.5
# If the busiest subtask retains at least this share of its work at twice the parallelism, the work cannot be divided.
_STAYS = 0.8
# A subtask with so many times an even share explains why more subtasks did not help.
_UNEVEN = 1.5
_NO_HELP = "a larger cluster would not help"


class Ailment(StrEnum):
    """The names of diagnoses; each has an entry in ``docs/autoscaling.md``."""

    HOT_KEY = "hot_key"
    SKEW = "skew"
    SINK_BOUND = "sink_bound"
    SOURCE_BOUND = "source_bound"
    FIXED_COST = "fixed_cost"
    MEMORY_BOUND = "memory_bound"
    FAILING = "failing"
    AT_LIMIT = "at_limit"
    INEFFECTIVE = "ineffective"
    TOO_SMALL = "too_small"
    TOO_LARGE = "too_large"
    HEALTHY = "healthy"


BOTTLENECKS = frozenset(
    {
        Ailment.HOT_KEY,
        Ailment.SKEW,
        Ailment.SINK_BOUND,
        Ailment.SOURCE_BOUND,
        Ailment.FIXED_COST,
        Ailment.INEFFECTIVE,
        Ailment.AT_LIMIT,
    }
)
"""Diagnoses of a job that is too slow and that no allowed rescale helps."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A diagnosis of a job.

    Attributes:
        name: Its name.
        found: The finding, with figures.
        todo: The advice; empty if there is nothing to do.
        parallelism: The size that the job needs; the current one if no other would help.
        kept, kept_long: For a job that is too large, the size that piles, recurring loads and the arrivals of ten (25)
            minutes need; else 0.
        has_fallen: Whether the load has fallen in the last 25 minutes, so that ``kept_long`` will soon fall, too.
        just_now: For a job that is too large, the size that the newest arrivals need.
        despite_limit: For a job whose source limits its epochs, the smallest size that suffices with that limit, else
            the smallest that keeps up with arrivals; 0 for other jobs, and if no size keeps up.
        is_short: Whether the throughput of the job is too low.
        epoch_goes_on_s: If it is, the shortest remaining time of the running epoch; 0 if unknown.
        shortage: Needed throughput, as a multiple of the current one.
        row_ms: Cost of a row; None when only an upper bound is known.
        row_error: Its relative standard error.
        evidence: Its figures.

    """

    name: Ailment
    found: str
    todo: str = ""
    parallelism: int = 0
    kept: int = 0
    kept_long: int = 0
    has_fallen: bool = False
    just_now: int = 0
    despite_limit: int = 0
    is_short: bool = False
    epoch_goes_on_s: float = 0.0
    shortage: float = 1.0
    row_ms: float | None = None
    row_error: float = 0.0
    evidence: dict[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Finding and advice in one line."""
        return f"{self.found}: {self.todo}" if self.todo else self.found


def diagnose(figures: Figures, settings: PolicySettings) -> Diagnosis | None:
    """Return the diagnosis of a job; None while too little is measured."""
    if figures.crashes >= _CRASHES:
        return _failing(figures)
    measured = throughput(figures, align=settings.align)
    if figures.arriving is None:
        return None
    if measured is None:
        return _foreseen(figures, settings)
    needs = Needs(figures, settings, measured)
    if needs.is_short():
        return replace(_short(needs), is_short=True, epoch_goes_on_s=needs.epoch_goes_on_s())
    if figures.memory_share is not None and figures.memory_share >= FULL_MEMORY:
        return _memory(needs, figures.memory_share)
    enough, smaller = needs.enough(), needs.to_shrink()
    words = needs.words(smaller)
    if enough < smaller:
        share = memory_share(figures, settings, enough) or 0.0
        words += f"; at {enough} a worker would use {share:.0%} of its memory"
    if smaller < figures.parallelism:
        diagnosis = _of(needs, Ailment.TOO_LARGE, words, parallelism=smaller)
        lately = kept(needs)
        return replace(
            diagnosis,
            kept=lately,
            kept_long=max(lately, for_arrivals(needs, TREND_MS)),
            has_fallen=has_fallen(needs, smaller),
            just_now=just_now(needs),
        )
    is_busy = figures.busy is None or figures.busy >= _HELD_BACK
    if is_busy and needs.is_late_by_fixed_cost():
        return _late_epochs(needs, words)
    return _of(needs, Ailment.HEALTHY, words)


def _foreseen(figures: Figures, settings: PolicySettings) -> Diagnosis | None:
    """Diagnose a job with too few epochs at its parallelism by those at another; None unless it falls behind."""
    measured = foreseen(figures, align=settings.align)
    if measured is None:
        return None
    # The time between its few epochs, in which nothing arrived, would make it look idle.
    needs = Needs(replace(figures, busy=None), settings, measured)
    if not needs.falls_behind():
        return None
    short = _short(needs)
    by = f"by what parallelism {measured.parallelism} did, {short.found}"
    return replace(short, found=by, is_short=True, row_ms=None)


def _short(needs: Needs) -> Diagnosis:
    """Return why the throughput of a job is too low, and the size that helps."""
    figures, now = needs.figures, needs.now
    # A job that is too slow for piles is idle between them.
    if figures.busy is not None and figures.busy < _HELD_BACK and not needs.late_again():
        return _of(
            needs,
            Ailment.SOURCE_BOUND,
            f"{needs.words(now)}, but epochs pause while rows wait",
            f"look at what triggers epochs and at what the source delivers; {_NO_HELP}",
        )
    limit = needs.limit()
    if limit is not None:
        return _limited(needs, limit)
    target = needs.to_grow()
    if target > now:
        return _of(needs, Ailment.TOO_SMALL, needs.words(target), parallelism=target)
    most = max(now, needs.sizes[-1])
    if now == most and needs.grows_beyond():
        return _of(
            needs,
            Ailment.AT_LIMIT,
            needs.words(now),
            f"allow more than {most}, with `statecore policy set {figures.job} --max-parallelism …` or a larger "
            "cluster",
        )
    return _bottleneck(needs)


def _limited(needs: Needs, limit: int | None) -> Diagnosis:
    """Return the diagnosis that the source limits epochs; ``limit`` is the limit to advise, None if unknown."""
    measured, suffices = needs.measured, needs.suffices()
    helps = _NO_HELP if suffices <= needs.now else f"parallelism {suffices} does enough with the present one"
    size = needs.now if suffices else needs.sizes[-1]
    waits = measured.period_ms > measured.fit.fixed_ms + measured.row_ms(size) * measured.epoch_rows
    why = (
        f"the next one begins {measured.period_ms / 1000:,.1f} s after it"
        if waits
        else f"{measured.fit.fixed_ms / 1000:,.1f} s of each are fixed"
    )
    diagnosis = _of(
        needs,
        Ailment.SOURCE_BOUND,
        f"{needs.words(needs.now)}; the source limits an epoch to {measured.epoch_rows:,.0f} rows, and {why}",
        f"raise the limit{'' if limit is None else f' to {limit:,} rows an epoch'}, with maxOffsetsPerTrigger, "
        f"maxFilesPerTrigger or the like{', or trigger epochs more often' if waits else ''}; {helps}",
        limit_rows=limit or 0,
    )
    return replace(diagnosis, despite_limit=suffices or needs.keeps_up())


def _bottleneck(needs: Needs) -> Diagnosis:
    """Return the diagnosis that names the largest part of an epoch that more subtasks do not divide."""
    measured, figures, now = needs.measured, needs.figures, needs.now
    fit, rows, whole_ms = measured.fit, measured.epoch_rows, measured.fit.cost_ms(measured.epoch_rows)
    share = measured.share(now)
    work_ms, stays = fit.row_ms * fit.work * rows, measured.share(2 * now) / share
    slowest, group, lost_ms = figures.slowest_sink, figures.heavy_key_group, work_ms * (1 - measured.scaling)
    hot = bool(figures.heavy_keys) and measured.heaviest >= _OF_THE_BUSIEST * share
    stuck_ms = {
        Ailment.FIXED_COST: fit.fixed_ms,
        Ailment.SINK_BOUND: fit.row_ms * fit.publish * rows,
        # The part of reading, and of a key's work, that remains at any number of subtasks.
        Ailment.SOURCE_BOUND: fit.row_ms * fit.read * rows * min(1.0, now / (measured.partitions or math.inf)),
        Ailment.HOT_KEY: work_ms * min(1.0, measured.heaviest / share) if hot else 0.0,
        Ailment.SKEW: 0.0 if hot else _skewed_ms(share * now, stays, work_ms, lost_ms),
        Ailment.INEFFECTIVE: lost_ms,
    }
    name = max(stuck_ms, key=lambda each: stuck_ms[each])
    if name is Ailment.FIXED_COST and measured.limited:
        return _limited(needs, None)
    part = stuck_ms[name] / max(whole_ms, 1e-6)
    why, todo = {
        Ailment.FIXED_COST: (
            f"{part:.0%} of an epoch, {fit.fixed_ms / 1000:,.1f} s, is the same for any number of rows",
            "look at the phases of epochs on the job's page, and trigger epochs less often, with "
            "statecore.trigger.interval",
        ),
        Ailment.SINK_BOUND: (
            f"publishing takes {part:.0%} of an epoch"
            + ("" if slowest is None else f", and the sink {slowest.sink} takes {slowest.share:.0%} of that"),
            "look at the sink: its load, its locks, its indexes",
        ),
        Ailment.SOURCE_BOUND: (
            f"reading takes {part:.0%} of an epoch, and the source has {measured.partitions} partitions",
            "give the source more partitions",
        ),
        Ailment.HOT_KEY: (
            f"the key {figures.heavy_keys[0].key if hot else ''} has {measured.heaviest:.0%} of the work, and one "
            "subtask does all of it",
            "split the key in the job, with a random part that a second operator merges, or filter it",
        ),
        Ailment.SKEW: (
            f"the busiest subtask has {share:.0%} of the rows, not {1 / now:.0%}"
            + ("" if group is None else f", and key group {group.key_group} has {group.share:.0%} of the work"),
            "look at the rows of subtasks and key groups on the job's page, and choose a key that spreads them",
        ),
        Ailment.INEFFECTIVE: (
            f"of what was to be gained against parallelism {measured.compared}, {measured.scaling:.0%} was measured",
            "look on Spark's page for what the subtasks wait for",
        ),
    }[name]
    return _of(needs, name, f"{needs.words(now)}; {why}", f"{todo}; {_NO_HELP}", part=round(part, 3))


def _skewed_ms(uneven: float, stays: float, work_ms: float, lost_ms: float) -> float:
    """Return the time of work that is not divided because the rows are spread unevenly.

    Args:
        uneven: Share of the busiest subtask, as a multiple of an even share.
        stays: Part of that share that would remain at twice the parallelism.
        work_ms: Time of the work.
        lost_ms: Time that a higher parallelism did not save.

    """
    if stays > _STAYS:
        return work_ms
    return lost_ms if uneven >= _UNEVEN else 0.0


def _late_epochs(needs: Needs, words: str) -> Diagnosis:
    """Return the diagnosis that no epoch is short enough for ``max_lag_s``."""
    fixed_s, limit_s = needs.measured.fit.fixed_ms / 1000, needs.settings.max_lag_s or 0.0
    return _of(
        needs,
        Ailment.FIXED_COST,
        f"{words}; {fixed_s:,.0f} s of each epoch are the same for any number of rows, so rows may wait "
        f"{2 * fixed_s:,.0f} s, longer than the limit of {limit_s:,.0f} s",
        f"look at the phases of epochs on the job's page, or allow more lag; {_NO_HELP}",
        limit_s=limit_s,
    )


def _failing(figures: Figures) -> Diagnosis:
    return Diagnosis(
        Ailment.FAILING,
        f"the last {figures.crashes} drivers failed, the newest with: {figures.crash or 'no reason given'}",
        f"remove the cause; {_NO_HELP}",
        figures.parallelism,
        evidence={"crashes": figures.crashes},
    )


def _memory(needs: Needs, share: float) -> Diagnosis:
    """Return the diagnosis of full memory, with a size of more workers if there is one: only workers add memory."""
    now, used = needs.now, f"a worker used {share:.0%} of its memory"
    workers, workers_for = needs.figures.workers, needs.settings.workers_for
    larger = next((size for size in needs.sizes if size > now and workers_for(size) > (workers or 0)), now)
    if workers is None or larger == now:
        todo = "give the workers more memory or the job more of them, or let state expire"
        return _of(needs, Ailment.MEMORY_BOUND, used, todo, memory_share=share)
    return _of(needs, Ailment.MEMORY_BOUND, used, parallelism=larger, memory_share=share)


def _of(
    needs: Needs, name: Ailment, found: str, todo: str = "", *, parallelism: int = 0, **evidence: float
) -> Diagnosis:
    fit = needs.measured.fit
    return Diagnosis(
        name,
        found,
        todo,
        parallelism or needs.now,
        shortage=needs.needed() / needs.measured.rows_per_second(needs.now),
        row_ms=fit.row_ms if fit.separated else None,
        row_error=fit.row_error,
        evidence=needs.evidence() | evidence,
    )
