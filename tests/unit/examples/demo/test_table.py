"""The tables at the end of the demo."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.table import Table

from examples.demo.feeder import Fed
from examples.demo.table import epoch_table, step_table
from statecore.catalog import EpochRecord, RescaleRunRecord, StepTimes


def epoch(number: int, parallelism: int) -> EpochRecord:
    return EpochRecord(
        job="flight_delays",
        lineage=1,
        epoch=number,
        generation=1,
        parallelism=parallelism,
        rows=1_000,
        rows_total=1_000 * (number + 1),
        started_ms=number * 1_000,
        committed_ms=number * 1_000 + 400,
        duration_ms=500,
        cache_hits=parallelism,
        subtasks=parallelism,
    )


def cells(table: Table, heading: str) -> list[str]:
    (column,) = [column for column in table.columns if column.header == heading]
    return [str(cell) for cell in column.cells]


def test_only_epochs_around_a_change_of_parallelism_are_shown_in_commit_order() -> None:
    parallelisms = [2] * 6 + [4] * 14 + [2] * 2
    epochs = [epoch(number, parallelism) for number, parallelism in enumerate(parallelisms)]
    table = epoch_table(list(reversed(epochs)), [])
    assert cells(table, "epoch") == [str(n) for n in range(3, 11)] + ["..."] + [str(n) for n in range(17, 22)]
    assert cells(table, "parallelism") == ["2"] * 3 + ["4"] * 5 + ["..."] + ["4"] * 3 + ["2"] * 2


def test_rate_and_backlog_come_from_the_duration_and_from_what_was_visible_at_the_commit() -> None:
    history = [Fed(0, 2_000), Fed(1_100, 9_000), Fed(1_500, 99_000)]
    table = epoch_table([epoch(0, 2), epoch(1, 4)], history)
    assert cells(table, "rows/s") == ["2,000", "2,000"]
    assert cells(table, "backlog") == ["1,000", "7,000"]


def test_without_a_rescale_the_epoch_table_is_empty() -> None:
    assert epoch_table([epoch(0, 2), epoch(1, 2)], []).row_count == 0
    assert epoch_table([], []).row_count == 0


def rescale(run_id: str, target: int, steps: dict[str, StepTimes], created_ms: int) -> RescaleRunRecord:
    return RescaleRunRecord(
        run_id=run_id,
        job="flight_delays",
        from_parallelism=6 - target,
        to_parallelism=target,
        from_workers=1,
        to_workers=2,
        method="by_reference",
        reason="backlog",
        state="done",
        savepoint=None,
        rescaled=None,
        steps=steps,
        error=None,
        created_ms=created_ms,
        updated_ms=created_ms,
    )


def test_steps_stand_in_the_order_they_ran_with_one_column_for_each_run() -> None:
    up = {"resize_cluster": StepTimes(3_000, 8_500), "stop_with_savepoint": StepTimes(1_000, 3_000)}
    down = {"stop_with_savepoint": StepTimes(50_000, 51_000), "resize_cluster": StepTimes(51_000, None)}
    table = step_table([rescale("b", 2, down, 49_000), rescale("a", 4, up, 500)])
    assert cells(table, "step") == ["stop_with_savepoint", "resize_cluster", "from first start to last end"]
    assert cells(table, "2 -> 4, by_reference") == ["2.0 s", "5.5 s", "7.5 s"]
    assert cells(table, "4 -> 2, by_reference") == ["1.0 s", "-", "1.0 s"]
    Console(width=80, file=None, quiet=True).print(table)


@pytest.mark.parametrize(
    "runs",
    [
        ["lease stop rescale_state restart verify", "lease rescale_state verify shrink_cluster"],
        ["lease rescale_state verify shrink_cluster", "lease stop rescale_state restart verify"],
    ],
    ids=["the longer one first", "the shorter one first"],
)
def test_the_order_of_each_run_is_kept(runs: list[str]) -> None:
    made = [
        rescale(run, 4, {step: StepTimes(at_ms, at_ms + 1) for at_ms, step in enumerate(run.split())}, created_ms)
        for created_ms, run in enumerate(runs)
    ]
    assert cells(step_table(made), "step")[:-1] == [
        "lease", "stop", "rescale_state", "restart", "verify", "shrink_cluster",
    ]  # fmt: skip


def test_what_ends_each_run_stands_last_whatever_else_they_have() -> None:
    restarted = {"lease": StepTimes(1, 2), "restart": StepTimes(3, 4), "verify": StepTimes(5, 6)}
    live = {"lease": StepTimes(11, 12), "rescale_state": StepTimes(13, 14), "verify": StepTimes(15, 16)}
    table = step_table([rescale("a", 4, restarted, 0), rescale("b", 2, live, 10)])
    assert cells(table, "step")[:-1] == ["lease", "restart", "rescale_state", "verify"]
