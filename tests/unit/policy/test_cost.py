"""The fit of ``a + b · rows``, and its prediction for other parallelisms."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.policy import EpochCost, Figures, HeavyKey, fit_cost, throughput
from tests.support.examples import examples


def epochs(
    sizes: list[int], *, fixed_ms: float, row_ms: float, noise: float = 0.0, parallelism: int = 2, begin_ms: int = 0
) -> list[EpochCost]:
    chance = random.Random(1)
    return [
        EpochCost(
            begin_ms + index * 1_000,
            parallelism,
            rows,
            round((fixed_ms + row_ms * rows) * (1 + noise * chance.uniform(-1, 1))),
        )
        for index, rows in enumerate(sizes)
    ]


@examples(40)
@given(
    fixed_ms=st.floats(0, 5_000),
    row_ms=st.floats(0.01, 1),
    sizes=st.lists(st.integers(2_000, 50_000), min_size=20, max_size=60),
)
def test_fixed_cost_and_cost_of_a_row_are_found_through_noise_ticks_and_cold_epochs(
    fixed_ms: float, row_ms: float, sizes: list[int]
) -> None:
    sizes = [*[1_000, 25_000, 50_000] * 3, *sizes]
    measured = epochs(sizes, fixed_ms=fixed_ms, row_ms=row_ms, noise=0.05)
    ticks = [EpochCost(each.committed_ms + 1, 2, 0, 40) for each in measured]
    cold = [replace(each, duration_ms=each.duration_ms * 4 + 9_000) for each in measured[1:4]]
    fit = fit_cost(sorted([*measured, *ticks, *cold], key=lambda each: each.committed_ms))
    assert fit is not None
    # With a row cost below the noise, the fit cannot separate the two and must underestimate the throughput.
    assert fit.separated or row_ms * 50_000 < fixed_ms / 2
    for rows in (2_000, 50_000):
        cost_ms = fixed_ms + row_ms * rows
        found_ms = fit.fixed_ms + fit.row_ms * rows
        if fit.separated:
            assert found_ms == pytest.approx(cost_ms, rel=0.15)
        elif rows >= fit.rows:
            assert found_ms > cost_ms


def test_three_epochs_suffice_if_they_took_two_minutes_together() -> None:
    # A job that falls behind: each epoch takes several times as long as the one before.
    sizes = (60_000, 400_000, 900_000)
    long = [EpochCost(at, 1, rows, 1_000 + rows // 5, 0, rows // 5, 0) for at, rows in enumerate(sizes)]
    fit = fit_cost(long)
    assert fit is not None and fit.separated and fit.phased
    assert (fit.fixed_ms, fit.row_ms, fit.work) == pytest.approx((1_000, 0.2, 1.0))
    assert fit_cost(long[:2]) is None
    assert fit_cost([replace(each, rows=each.rows // 3, duration_ms=each.duration_ms // 3) for each in long]) is None


USUAL = [EpochCost(at, 4, 4_500 + at % 1_000, 1_000, 0, 950, 0) for at in range(60)]


def test_two_ever_larger_epochs_of_a_minute_together_show_that_rows_have_become_dearer() -> None:
    slow = [EpochCost(100 + at, 4, rows, rows, 0, rows // 5, rows * 4 // 5) for at, rows in ((0, 20_000), (1, 45_000))]
    fit = fit_cost([*USUAL, *slow])
    assert fit is not None and not fit.separated and fit.phased
    assert (fit.row_ms, fit.work, fit.publish) == pytest.approx((1.0, 0.2, 0.8))
    # Two do not show by how much they are off.
    assert fit.error >= 0.2 and fit.work_error >= 0.2


def test_the_first_epoch_that_is_dearer_may_have_the_usual_rows_and_the_phases_are_known_at_once() -> None:
    sizes = (4_400, 20_000, 37_000)
    slow = [EpochCost(100 + at, 4, rows, 400 + rows, 0, rows // 5, rows * 4 // 5) for at, rows in enumerate(sizes)]
    fit = fit_cost([*USUAL, *slow])
    assert fit is not None and fit.phased
    assert (fit.row_ms, fit.work, fit.publish) == pytest.approx((1.0, 0.2, 0.8))


@pytest.mark.parametrize(
    "newest",
    [
        pytest.param([(5_000, 600_000)], id="one that is stuck"),
        pytest.param([(5_000, 40_000), (100_000, 90_000)], id="one that is cold, and one that is not"),
        pytest.param([(4_400, 40_000), (100_000, 40_000)], id="one that is cold, and a larger one that is less so"),
        pytest.param([(4_400, 45_000), (20_000, 10_000), (26_000, 13_000)], id="one that is stuck, and two not long"),
        pytest.param([(7_500, 35_000), (7_500, 30_000)], id="two as large as the source's limit"),
        pytest.param([(20_000, 20_000), (35_000, 35_000)], id="two that are not long"),
    ],
)
def test_epochs_that_are_cold_or_stuck_do_not_show_that_rows_have_become_dearer(newest: list[tuple[int, int]]) -> None:
    off = [EpochCost(100 + at, 4, rows, ms, 0, ms, 0) for at, (rows, ms) in enumerate(newest)]
    fit, usual = fit_cost([*USUAL, *off]), fit_cost(USUAL)
    assert fit is not None and usual is not None
    assert fit.row_ms < 2 * usual.row_ms


def test_one_epoch_of_ten_minutes_shows_that_rows_have_become_cheaper() -> None:
    sizes = [13_000 * 2**at for at in range(8)]
    slow = [EpochCost(at, 1, rows, rows, 0, rows * 3 // 10, rows * 7 // 10) for at, rows in enumerate(sizes)]
    fast = EpochCost(100, 1, 2_000_000, 702_000, 0, 580_000, 120_000)
    fit = fit_cost([*slow, fast])
    assert fit is not None and (fit.row_ms, fit.work) == pytest.approx((0.35, 0.83), rel=0.01)
    fit = fit_cost([*slow, replace(fast, rows=fast.rows // 2, duration_ms=fast.duration_ms // 2)])
    assert fit is not None and fit.row_ms == pytest.approx(1.0, rel=0.01)


def test_where_the_fit_explains_epochs_of_one_size_alone_the_newest_show_the_phases() -> None:
    # Usual epochs are all alike, and those since the sink became slow are ten times dearer; it is fast again now.
    usual = [EpochCost(at, 1, 1_641 + at % 2, 740, 0, 490, 100) for at in range(49)]
    sizes = (13_285, 21_666, 35_605, 55_932, 88_606, 147_455, 249_556, 416_090, 669_133, 1_057_286, 1_780_527)
    slow = [EpochCost(100 + at, 1, rows, rows, 0, rows * 3 // 10, rows * 7 // 10) for at, rows in enumerate(sizes)]
    fit = fit_cost([*usual, *slow, EpochCost(200, 1, 1_600_000, 561_600, 0, 464_000, 96_000)])
    assert fit is not None and fit.separated and fit.phased
    assert (fit.work, fit.publish) == pytest.approx((0.3, 0.7), abs=0.01)


def test_one_cold_epoch_among_the_fewest_does_not_show_the_phases() -> None:
    # (rows, duration, read, work, publish) of a job on Spark, which had just begun.
    measured = [
        (300, 23_213, 19_738, 3_313, 78),
        (1_200, 6_288, 806, 5_068, 184),
        (600, 2_975, 758, 2_139, 58),
        (900, 4_323, 544, 3_660, 41),
        (300, 1_583, 286, 1_254, 24),
    ]
    fit = fit_cost([EpochCost(number, 2, *each) for number, each in enumerate(measured)])
    assert fit is not None and fit.phased
    assert fit.work == pytest.approx(0.8, abs=0.05) and fit.read == pytest.approx(0.18, abs=0.05)


def test_epochs_of_one_size_give_a_rate_that_the_job_does_at_least() -> None:
    fit = fit_cost(epochs([2_000, 2_010, 1_990] * 5, fixed_ms=400, row_ms=0.05, noise=0.1))
    assert fit is not None and not fit.separated
    assert 1000 / fit.row_ms == pytest.approx(2_000 / 0.5, rel=0.1)


def test_when_sizes_were_not_alike_is_not_forgotten_over_many_alike() -> None:
    before = epochs([1_000, 10_000, 40_000, 50_000] * 3, fixed_ms=500, row_ms=0.1, noise=0.05)
    after = epochs([2_000] * 500, fixed_ms=500, row_ms=0.1, noise=0.05, begin_ms=100_000)
    fit = fit_cost(before + after)
    assert fit is not None and fit.separated
    assert (fit.fixed_ms, fit.row_ms) == (pytest.approx(500, rel=0.1), pytest.approx(0.1, rel=0.1))  # type: ignore[comparison-overlap]


def test_four_epochs_and_any_number_of_ticks_are_too_few() -> None:
    few = epochs([1_000, 2_000, 3_000, 4_000], fixed_ms=100, row_ms=0.1)
    assert fit_cost([*few, *epochs([0] * 50, fixed_ms=100, row_ms=0)]) is None


def job(measured: list[EpochCost], *, waiting: int = 0) -> Figures:
    return Figures("j", 10**6, measured[-1].parallelism, 128, epochs=tuple(measured), waiting=waiting)


SIZES = [1_000, 5_000, 20_000, 30_000] * 3


def test_scaling_is_linear_until_another_parallelism_has_been_measured() -> None:
    alone = throughput(job(epochs(SIZES, fixed_ms=200, row_ms=0.2)))
    assert alone is not None and (alone.scaling, alone.compared) == (1.0, None)
    at_one = epochs(SIZES, fixed_ms=200, row_ms=0.3, parallelism=1)
    both = throughput(job(at_one + epochs(SIZES, fixed_ms=200, row_ms=0.2, begin_ms=50_000)))
    assert both is not None and both.compared == 1
    # Twice the subtasks took two thirds of the time: four times take four ninths.
    assert both.rows_per_second(8) / both.rows_per_second(2) == pytest.approx(
        (200 + 0.2 * both.epoch_rows) / (200 + 0.2 * both.epoch_rows * 4 / 9), rel=0.02
    )


def test_what_more_subtasks_did_not_gain_says_nothing_of_sizes_below_both() -> None:
    at_three = epochs(SIZES, fixed_ms=0, row_ms=0.2, parallelism=3)
    found = throughput(job(at_three + epochs(SIZES, fixed_ms=0, row_ms=0.2, begin_ms=50_000)))
    assert found is not None and found.compared == 3 and found.scaling == pytest.approx(0, abs=0.01)
    assert found.rows_per_second(4) == pytest.approx(5_000, rel=0.01)
    assert found.rows_per_second(1) == pytest.approx(2_500, rel=0.01)
    # It holds between both, and not below.
    at_four = epochs(SIZES, fixed_ms=0, row_ms=0.2, parallelism=4, begin_ms=50_000)
    between = throughput(replace(job(epochs(SIZES, fixed_ms=0, row_ms=0.2) + at_four), parallelism=4))
    assert between is not None and between.compared == 2
    assert between.rows_per_second(3) == pytest.approx(5_000, rel=0.01)
    assert between.rows_per_second(1) == pytest.approx(2_500, rel=0.01)
    assert [between.is_measured(size) for size in (1, 2, 8)] == [False, True, True]


def test_epochs_that_cannot_grow_leave_their_fixed_cost_in_the_rate() -> None:
    measured = epochs([*SIZES, *[30_000] * 10], fixed_ms=3_000, row_ms=0.1)
    free, limited = throughput(job(measured)), throughput(replace(job(measured), epoch_limit=30_000))
    assert free is not None and limited is not None
    assert free.rows_per_second(2) == pytest.approx(9_000, rel=0.02)
    assert limited.rows_per_second(2) == pytest.approx(5_000, rel=0.02)
    assert limited.rows_per_second(64) < 10_000


def test_a_cost_that_has_changed_lately_is_that_of_the_epochs_since_then() -> None:
    before = epochs(SIZES * 4, fixed_ms=200, row_ms=0.1, noise=0.05)
    after = epochs(SIZES[:8], fixed_ms=200, row_ms=0.4, noise=0.05, begin_ms=100_000)
    for first, second, row_ms in ((before, after, 0.4), (after, before, 0.1)):
        fit = fit_cost([*first, *second])
        assert fit is not None and fit.row_ms == pytest.approx(row_ms, rel=0.15)


def phased(sizes: list[int], *, parallelism: int = 2, begin_ms: int = 0) -> list[EpochCost]:
    """Epochs of 300 ms, 0.1 ms of work and 0.05 ms of publishing for each row."""
    measured = epochs(sizes, fixed_ms=300, row_ms=0.15, parallelism=parallelism, begin_ms=begin_ms)
    return [replace(each, read_ms=0.0, work_ms=0.1 * each.rows, publish_ms=0.05 * each.rows) for each in measured]


def test_publishing_is_divided_by_nothing() -> None:
    measured = throughput(job(phased(SIZES)))
    assert measured is not None and measured.fit.phased
    assert [measured.fit.work, measured.fit.publish] == pytest.approx([2 / 3, 1 / 3], rel=0.01)
    assert measured.row_ms(8) == pytest.approx(0.1 / 4 + 0.05, rel=0.01)


def test_epochs_of_one_size_whose_phases_are_known_show_what_rows_cost() -> None:
    fit = fit_cost(phased([2_000] * 20))
    assert fit is not None and not fit.separated
    assert [fit.fixed_ms, fit.row_ms] == pytest.approx([300, 0.15], rel=0.01)


def test_a_key_and_a_source_are_divided_no_further_than_they_can_be() -> None:
    hot = throughput(replace(job(phased(SIZES)), heavy_keys=(HeavyKey("42", 0.4),), busiest_share=0.5))
    assert hot is not None
    assert [round(hot.share(size), 3) for size in (1, 2, 4)] == [1.0, 0.5, 0.4]
    assert hot.row_ms(16) == hot.row_ms(4) == pytest.approx(0.08 + 0.05, rel=0.01)
    reads = [replace(each, read_ms=each.work_ms, work_ms=0.0) for each in phased(SIZES)]
    read = throughput(replace(job(reads), source_partitions=4))
    assert read is not None and read.row_ms(64) == read.row_ms(4) < read.row_ms(3)


def test_a_skewed_job_keeps_its_skew() -> None:
    skewed = throughput(replace(job(phased(SIZES)), busiest_share=0.75))
    assert skewed is not None and skewed.share(4) == pytest.approx(0.375)


def test_the_scaling_is_that_of_the_work_alone() -> None:
    both = throughput(job(phased(SIZES, parallelism=1) + phased(SIZES, begin_ms=10**6)))
    assert both is not None and both.compared == 1 and both.scaling == pytest.approx(0, abs=0.02)
    one = [
        replace(each, work_ms=0.2 * each.rows, duration_ms=round(300 + 0.25 * each.rows))
        for each in phased(SIZES, parallelism=1)
    ]
    both = throughput(job(one + phased(SIZES, begin_ms=10**6)))
    assert both is not None and both.scaling == pytest.approx(1, abs=0.02)


@examples(60)
@given(seed=st.integers(0, 2**32), smaller=st.integers(1, 12), noise=st.floats(0, 0.1))
def test_noise_never_hides_that_more_subtasks_help(seed: int, smaller: int, noise: float) -> None:
    chance, larger = random.Random(seed), 2 * smaller

    def phased(parallelism: int, begin_ms: int) -> Iterator[EpochCost]:
        # The newest epochs are of much the same size: they alone show the cost of a row poorly.
        for index in range(200):
            rows = chance.randint(9_000, 40_000) if index < 100 else chance.randint(13_500, 14_000)
            off = 1 + noise * chance.uniform(-1, 1)
            work_ms = rows * 0.2 / parallelism * off
            took_ms = round(300 * off + work_ms)
            yield EpochCost(begin_ms + index * 1_000, parallelism, rows, took_ms, 0.0, work_ms, 0.0)

    measured = (*phased(smaller, 0), *phased(larger, 10**6))
    found = throughput(Figures("flights", 2 * 10**6, larger, 128, epochs=measured))
    assert found is not None and (found.compared is None or found.scaling > 0.8)
