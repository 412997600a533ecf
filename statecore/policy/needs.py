"""The throughput that a job needs, and the sizes that reach it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from statecore.policy.alignment import aligned
from statecore.policy.arrivals import TREND_MS, Spell, late_spells, since
from statecore.policy.capacity import Throughput
from statecore.policy.figures import Figures
from statecore.policy.patterns import PILES_MS, piles
from statecore.policy.rules import scheduled
from statecore.policy.settings import PolicySettings

# With high fixed costs, a size a fifth smaller may nearly reach the throughput of the largest; it is then chosen.
_NEARLY, _FEWER = 0.95, 0.8
# Smallest gain in throughput per gain in size that is worth the cluster: at 0.4, twice the size does 1.4 times as much.
_EFFICIENT = 0.4
# The same if arrivals exceed the throughput of any size: a rescale only gains time.
_NEARLY_LINEAR = 0.8
# The cost of a row may be higher than measured by so many standard errors.
_DOUBT = 2.0
# Before scaling in, so many seconds of work may wait.
_SOON_DRAINED_S = 30.0
# Time from a need to the end of a rescale: arrivals are extrapolated this far, to at most this multiple of the current.
_LEAD_S, _MOST_RISE = 120.0, 2.0
# A job shrinks to one subtask only below this share of the usual utilisation: a second one costs one core, and a single
# one is late at every peak.
_ALONE = 0.8
# An epoch far larger than the measured ones may take only this share of the predicted time.
_AT_LEAST = 0.8
# From this duration on, the end of the running epoch delays a rescale.
_LONG_EPOCH_S = 30.0
SOON = 2
"""A scale-in that lasts for less than this multiple of ``scale_in_after_s`` saves too little."""
FULL_MEMORY = 0.8
"""Share of its memory from which a worker is full."""
# Assumed duration of a job's first rescale.
_FIRST_RESCALE_MS = 60_000
# A rescale that took longer waited for something that may not come again.
_LONGEST_RESCALE_S = 1200.0
# From this share of the time, epochs run back to back.
_BACK_TO_BACK = 0.9
# The policy waits out a spell of late rows that ends within this time.
_SOON_S = 450.0
# Fewest spells that show a pattern, not an accident, and the least share of the time that they take.
_PATTERN, _RARELY = 2, 0.03
# Piles count only if the arrivals between them take at most this share of the throughput.
_BUSY_BETWEEN = 0.4
# With ``max_lag_s``, a scale-out drains the backlog faster by this factor, because rows are late until then. A larger
# factor costs more than it saves: the job keeps the larger size for a while after.
_DRAINS_FASTER = 1.5
# A pile may take this multiple of the catch-up time before a rescale is worth it.
_NOT_MUCH_LONGER = 1.5
# Noise hides a rise: extra headroom, in standard deviations of the two-minute rate, and the largest noise that counts.
_NOISE, _MOST_NOISE = 1.0, 0.1
# Arrivals of this time show whether rows still arrive.
_LATELY_MS = 30_000
# A throughput of this share of the arrivals keeps up: the rest is an error of measurement.
_ABOUT_ALL = 0.99
# Largest share of the time that rows may take when a higher limit of an epoch is advised.
_ALL_ROWS = 0.95


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of a job, by its figures at one time.

    The throughput that a job needs is the larger of

    - arrivals with headroom for peaks:     ``arriving / target utilisation``, more if they are unsteady
    - draining the backlog in time:         ``arriving + waiting / catch-up time``
    """

    figures: Figures
    settings: PolicySettings
    measured: Throughput

    @property
    def sizes(self) -> list[int]:
        """The allowed sizes."""
        return allowed_sizes(self.figures, self.settings)

    @property
    def now(self) -> int:
        """The current size."""
        return self.figures.parallelism

    def is_short(self) -> bool:
        """Return whether the throughput of the job is below its need, beyond the hysteresis."""
        if self._stays_late() or self.late_again():
            return True
        if not self.measured.fit.separated and self._waiting() <= 2 * self.measured.fit.rows:
            # If fixed and row cost are not separated, back-to-back epochs seem to process exactly what arrives. Only
            # a backlog proves that the throughput is too low.
            return False
        margin = 1 + self._hysteresis()
        rate = self.measured.rows_per_second(self.now)
        return self.needed(_LEAD_S) > rate * margin and not self._drains_soon(rate, margin)

    def with_headroom(self, parallelism: int) -> float:
        """Return the throughput of a size, less headroom."""
        return self.measured.rows_per_second(parallelism) / self._headroom()

    def bears(self, parallelism: int) -> float:
        """Return the arrivals beyond which a size would be too small, at the upper estimate of the cost of a row."""
        doubt = 1 + _DOUBT * self.measured.fit.row_error
        return self.with_headroom(parallelism) * (1 + self.settings.hysteresis) / doubt

    def falls_behind(self) -> bool:
        """Return whether rows wait and arrivals exceed the throughput, as measured at another size."""
        measured, fit = self.measured, self.measured.fit
        if not fit.separated and not fit.phased and self.now < measured.parallelism:
            # Part of the cost of a row does not rise at a smaller size.
            return False
        lately = since(self.figures.arrived, self.figures.at_ms - _LATELY_MS)
        # A pile after a silence is over, and shows no rate.
        goes_on = len(lately) > 1 and lately[-1][1] > lately[0][1]
        rate = measured.rows_per_second(self.now) * (1 + self._hysteresis())
        return goes_on and self._waiting() > 0 and self._arriving() > rate

    def late_again(self) -> bool:
        """Return whether recent arrivals made rows late more than once."""
        return _is_pattern(self._late(self.now)) or _is_pattern(self.late_in_piles(self.now))

    def may_wait_s(self) -> float:
        """Return how long rows may wait."""
        return self.settings.max_lag_s or self.settings.catch_up_s

    def late_in_piles(self, parallelism: int) -> list[Spell]:
        """Return the spells in which piles alone would have made rows late at a size."""
        if self._arriving() > _BUSY_BETWEEN * self.measured.rows_per_second(parallelism):
            return []
        rate = self._beyond_hysteresis(parallelism)
        # Cut to ``PILES_MS`` only now: a load already high at its start must not look like a pile.
        piled = piles(self.figures.arrived, rate, self.may_wait_s())
        return late_spells(since(piled, self.figures.at_ms - PILES_MS), rate, self.may_wait_s())

    def needed(self, ahead_s: float = 0.0, *, faster: float = 1.0) -> float:
        """Return the throughput that the job needs if arrivals continue to rise.

        Args:
            ahead_s: How long they continue to rise.
            faster: Factor by which the backlog drains faster than in the catch-up time.

        """
        arriving, drain_s = self._arriving_in(ahead_s), self.settings.catch_up_s / faster
        pause_s = min((self.figures.downtime_ms or 0) / 1000, drain_s / 2)
        piling = max(0.0, arriving - self.measured.rows_per_second(self.now)) * min(ahead_s, _LEAD_S)
        drain = arriving + (self._waiting_then() + piling + arriving * pause_s) / (drain_s - pause_s)
        return max(self._steady(ahead_s), drain)

    def limit(self) -> int | None:
        """Return the limit of rows per epoch to advise; None if the limit is not the cause.

        With it the current size suffices; or the largest one, if no size suffices with the current limit.
        """
        if not self.measured.limited:
            return None
        steady, rate = self._steady(0.0), self.measured.rows_per_second
        rows = self._limit_for(self.needed())
        if rows is None and all(rate(size) < steady for size in self.sizes):
            # No limit drains the backlog in time, but keeping up with arrivals needs a higher one.
            return self._limit_for(steady)
        return rows

    def _limit_for(self, needed: float) -> int | None:
        """Return the rows per epoch for a needed throughput, rounded up; None if no number suffices."""
        measured = self.measured
        for size in [self.now] if self.suffices() else [self.now, self.sizes[-1]]:
            rows_share = needed / 1000 * measured.row_ms(size)
            if rows_share <= _ALL_ROWS:
                least_ms = max(measured.fit.fixed_ms / (1 - rows_share), measured.period_ms)
                rows = max(needed / 1000 * least_ms, 2 * measured.epoch_rows)
                # Two significant digits, upwards.
                unit: int = 10 ** max(0, len(str(math.ceil(rows))) - 2)
                return math.ceil(rows / unit) * unit
        return None

    def suffices(self) -> int:
        """Return the smallest size with the needed throughput; 0 if none has it."""
        needed, rate = self.needed(), self.measured.rows_per_second
        return next((size for size in self.sizes if rate(size) >= needed), 0)

    def keeps_up(self) -> int:
        """Return the smallest size that keeps up with arrivals, without draining the backlog; 0 if none does."""
        rate = self.measured.rows_per_second
        return next((size for size in self.sizes if rate(size) >= _ABOUT_ALL * self._arriving()), 0)

    def to_grow(self) -> int:
        """Return the size to scale out to: one that suffices, else the one that helps most, else the current one."""
        rate = self.measured.rows_per_second
        faster = 1.0 if self.settings.max_lag_s is None else _DRAINS_FASTER
        needed = self.needed(_LEAD_S + self.settings.cooldown_s, faster=faster)
        worth = [size for size in self.sizes if size > self.now and self._is_worth(size)]
        if not worth:
            return self.now
        most = max(rate(size) for size in worth)
        again = self.late_again()

        def is_late(size: int) -> bool:
            return bool(self._late(size) or self.late_in_piles(size))

        suffices = (size for size in worth if rate(size) >= needed and not (again and is_late(size)))
        enough = next(suffices, worth[-1])
        nearly = next(size for size in worth if rate(size) >= _NEARLY * most)
        return nearly if nearly <= _FEWER * enough else enough

    def to_shrink(self) -> int:
        """Return the smallest size that suffices and has the memory; the current one if none does."""
        sizes = range(self.enough(), self.now)
        fits = (size for size in self.sizes if size in sizes and not fills_memory(self.figures, self.settings, size))
        return next(fits, self.now)

    def enough(self) -> int:
        """Return the smallest size that suffices for arrivals; the current one if none does, and while rows are late.

        Peaks need no headroom beyond the target utilisation: ``kept`` plays them to each size.
        """
        if self._stays_late() or self._is_late():
            return self.now
        rate, waiting = self.measured.rows_per_second, self._waiting()
        present = self._arriving() / self.settings.target_utilisation * (1 + _DOUBT * self.measured.fit.row_error)
        # A smaller size that is soon too small gains nothing.
        ahead_s = max(_LEAD_S, SOON * self.settings.scale_in_after_s)
        needed = max(present, self._steady(ahead_s) / (1 + self._hysteresis()))
        # A backlog of one usual epoch is no pile.
        usual = self.measured.fit.rows

        def does(size: int) -> bool:
            share = _ALONE if size == 1 else 1.0
            return rate(size) * share >= needed and waiting <= max(usual, rate(size) * _SOON_DRAINED_S)

        return min(next(filter(does, self.sizes), self.now), self.now)

    def grows_beyond(self) -> bool:
        """Return whether twice the current size would be worth its cost if it were allowed."""
        return self._is_worth(2 * self.now)

    def is_late_by_fixed_cost(self) -> bool:
        """Return whether the fixed cost of epochs makes rows late: a row waits for the running epoch and its own."""
        limit_s = self.settings.max_lag_s or math.inf
        return self._arriving() > 0 and 2 * self.measured.fit.fixed_ms > 1000 * limit_s

    def words(self, parallelism: int) -> str:
        """Describe the figures, and the throughput now and at a size."""
        figures, measured = self.figures, self.measured
        parts = [f"{self._arriving():,.0f} rows/s arrive", f"{self._waiting():,.0f} rows wait"]
        if figures.lag_ms is not None:
            parts.append(f"lag {figures.lag_ms / 1000:,.0f} s")
        if figures.busy is not None:
            parts.append(f"epochs run {figures.busy:.0%} of the time")
        least = "" if measured.fit.separated else "at least "
        can = f"{least}{measured.rows_per_second(self.now):,.0f} rows/s at parallelism {self.now}"
        if parallelism != self.now:
            scaling = f"{measured.scaling:.0%} of linear" if measured.is_measured(parallelism) else "assumed linear"
            can += f", {measured.rows_per_second(parallelism):,.0f} at {parallelism} (scaling {scaling})"
        elif parallelism == self.sizes[-1]:
            can += ", the largest allowed"
        return f"{', '.join(parts)}; the job can do {can}"

    def evidence(self) -> dict[str, float]:
        """Return the figures behind a diagnosis."""
        fit, measured = self.measured.fit, self.measured
        known = {
            "arriving": self._arriving(),
            "waiting": self._waiting(),
            "needed": self.needed(),
            "rows_per_second": measured.rows_per_second(self.now),
            "fixed_ms": fit.fixed_ms,
            "row_ms": fit.row_ms,
            "read": fit.read,
            "work": fit.work,
            "publish": fit.publish,
            "busiest_share": measured.share(self.now),
            "heaviest_key": measured.heaviest,
        }
        return {name: round(value, 4) for name, value in known.items()}

    def _is_worth(self, parallelism: int) -> bool:
        rate = self.measured.rows_per_second
        gain, growth = rate(parallelism) / rate(self.now) - 1, parallelism / self.now - 1
        keeps_up = self.measured.most_rows_per_second() >= self._arriving()
        return gain >= (_EFFICIENT if keeps_up else _NEARLY_LINEAR) * growth

    def _hysteresis(self) -> float:
        """Return the hysteresis, widened by the error of the measurement; the two add in quadrature."""
        return math.hypot(self.settings.hysteresis, _DOUBT * self.measured.fit.row_error)

    def _arriving(self) -> float:
        return self.figures.arriving or 0.0

    def _arriving_in(self, ahead_s: float) -> float:
        return min(self._arriving() + self.figures.rising * ahead_s, _MOST_RISE * self._arriving())

    def _steady(self, ahead_s: float) -> float:
        """Return the arrivals with headroom for peaks."""
        return self._arriving_in(ahead_s) * self._headroom()

    def _headroom(self) -> float:
        """Return the throughput to provide, as a multiple of arrivals: for peaks, and for a rise that noise hides."""
        noise = _NOISE * min(self.figures.arriving_noise, _MOST_NOISE)
        return 1 + math.hypot(1 / self.settings.target_utilisation - 1, noise)

    def _waiting(self) -> float:
        """Return the rows that wait; if no source reports them, estimate them from the lag beyond its limit."""
        figures = self.figures
        if figures.waiting is not None:
            return float(figures.waiting)
        return (figures.processed or 0.0) * self._late_s()

    def _waiting_then(self) -> float:
        """Return the rows that will wait at the end of the epoch that a rescale waits for."""
        left, fit = self.figures.left, self.measured.fit
        if left is None or self.measured.limited:
            return self._waiting()
        epoch_s = fit.cost_ms(left) / 1000
        if epoch_s / 2 < (self.figures.rescale_ms or _FIRST_RESCALE_MS) / 1000:
            # The running epoch probably ends before the workers are there, so the rescale waits for the next one.
            epoch_s = max(epoch_s, fit.cost_ms(self._arriving() * epoch_s) / 1000)
        return self._waiting() if epoch_s < _LONG_EPOCH_S else self._arriving() * epoch_s

    def epoch_goes_on_s(self) -> float:
        """Return the shortest remaining time of the running epoch in seconds; 0 if unknown."""
        figures = self.figures
        began_ms = [each.committed_ms for each in figures.epochs[-1:]]
        began_ms += [] if figures.started_ms is None else [figures.started_ms]
        if not began_ms or not figures.left:
            return 0.0
        rows = min(figures.left, figures.epoch_limit or figures.left)
        least_ms = _AT_LEAST * self.measured.fit.cost_ms(rows)
        return max(0.0, least_ms - (figures.at_ms - max(began_ms))) / 1000

    def _late_s(self) -> float:
        lag_ms, limit_s = self.figures.lag_ms, self.settings.max_lag_s
        return 0.0 if lag_ms is None or limit_s is None else max(0.0, lag_ms / 1000 - limit_s)

    def _stays_late(self) -> bool:
        """Return whether rows wait longer than allowed, and will for a while."""
        rate = self.measured.rows_per_second(self.now)
        # A silent source lags as well. A larger cluster helps only if more rows wait than one epoch reads in time.
        if self._late_s() == 0 or self._waiting() <= min(self.measured.fit.rows, rate * self.may_wait_s()):
            return False
        too_many = self._waiting() - self._under_way(rate) - rate * self.may_wait_s()
        spare = rate - self._arriving()
        return spare <= 0 or too_many > spare * max(_SOON_S, self._rescale_s())

    def _under_way(self, rate: float) -> float:
        """Return the rows of the running epoch that it has probably processed; they wait until it ends."""
        figures = self.figures
        if not figures.left or not figures.epochs or figures.busy is None:
            # Without an epoch of this driver, the start of the first one is unknown.
            return 0.0
        rows = min(figures.left, figures.epoch_limit or figures.left)
        return min(float(rows), rate * max(0, figures.at_ms - figures.epochs[-1].committed_ms) / 1000)

    def _is_late(self) -> bool:
        """Return whether rows wait longer than allowed because a busy job has too large a backlog."""
        is_busy = self.figures.busy is None or self.figures.busy >= _BACK_TO_BACK
        too_many = self._waiting() > self.measured.rows_per_second(self.now) * self.may_wait_s()
        return is_busy and self._late_s() > 0 and too_many

    def _drains_soon(self, rate: float, margin: float) -> bool:
        """Return whether the job keeps up, and drains its backlog in about the catch-up time."""
        keeps_up = self._steady(_LEAD_S) <= rate * margin
        within_s = max(_NOT_MUCH_LONGER * self.settings.catch_up_s, self._rescale_s())
        return keeps_up and self._waiting_then() <= (rate - self._arriving()) * within_s

    def _rescale_s(self) -> float:
        """Return the expected duration of a rescale, which does not help a backlog that drains sooner; 0 if unknown."""
        return min((self.figures.rescale_ms or 0) / 1000, _LONGEST_RESCALE_S)

    def _late(self, parallelism: int) -> list[Spell]:
        """Return the spells in which rows would have been late at a size."""
        lately = since(self.figures.arrived, self.figures.at_ms - TREND_MS)
        return late_spells(lately, self._beyond_hysteresis(parallelism), self.may_wait_s())

    def _beyond_hysteresis(self, parallelism: int) -> float:
        """Return the throughput of a size; of another size than the current one, less the hysteresis."""
        margin = 1.0 if parallelism == self.now else 1 + self.settings.hysteresis
        return self.measured.rows_per_second(parallelism) / margin


def _is_pattern(spells: list[Spell]) -> bool:
    """Return whether rows were late more than once, and for much of the time from one spell to the next."""
    if len(spells) < _PATTERN:
        return False
    late_s = sum(spell.seconds for spell in spells[1:])
    return 1000 * late_s >= _RARELY * (spells[-1].began_ms - spells[0].began_ms)


def fills_memory(figures: Figures, settings: PolicySettings, parallelism: int) -> bool:
    """Return whether the memory of the workers at a smaller size would be full, or nearly."""
    share = memory_share(figures, settings, parallelism)
    # Less the hysteresis, so that the scale-in need not be reverted.
    return share is not None and share >= FULL_MEMORY * (1 - settings.hysteresis)


def memory_share(figures: Figures, settings: PolicySettings, parallelism: int) -> float | None:
    """Return the share of its memory that a worker would use at a size, if the current use is divided evenly.

    None if memory is not measured, or the job has no cluster.
    """
    if figures.memory_share is None or figures.workers is None:
        return None
    return figures.memory_share * figures.workers / min(figures.workers, settings.workers_for(parallelism))


def allowed_sizes(figures: Figures, settings: PolicySettings) -> list[int]:
    """Return the sizes within the limits that a decision may choose."""
    sizes = within_limits(figures, settings)
    return aligned(sizes, figures.max_parallelism, figures.source_partitions) if settings.align else sizes


def within_limits(figures: Figures, settings: PolicySettings) -> list[int]:
    """Return the sizes within the limits of settings, schedules and the cluster."""
    sizes = settings.sizes(figures.max_parallelism, by_worker=figures.workers is not None)
    if figures.workers is not None and figures.max_workers is not None:
        most = max(figures.parallelism, figures.max_workers * settings.subtasks_per_worker)
        sizes = [size for size in sizes if size <= most] or sizes[:1]
    asked = scheduled(figures, settings)
    least = 0 if asked is None else asked.parallelism
    # If no size of whole workers is large enough, a job that is large enough stays.
    return [size for size in sizes if size >= least] or [max(sizes[-1], min(least, figures.parallelism))]


def limits(figures: Figures, settings: PolicySettings) -> tuple[int, int]:
    """Return the lowest and highest parallelism that a job may keep, including sizes between whole workers."""
    highest, asked = min(settings.max_parallelism, figures.max_parallelism), scheduled(figures, settings)
    lowest = max(settings.min_parallelism, 0 if asked is None else asked.parallelism)
    return min(lowest, within_limits(figures, settings)[-1]), highest
