"""What earlier rescales took."""

from __future__ import annotations

from dataclasses import replace

from statecore.catalog import RescaleRunRecord, StepTimes
from statecore.operations.downtime import usual_step_ms

RUN = RescaleRunRecord("r", "orders", 2, 4, None, None, "live", "", "done", None, None, {}, None, 1, 2)


def took(state: str, **steps: tuple[int | None, int | None]) -> RescaleRunRecord:
    return replace(RUN, state=state, steps={name: StepTimes(*times) for name, times in steps.items()})  # type: ignore[arg-type]


def test_a_step_usually_takes_the_median_of_the_runs_that_were_done() -> None:
    runs = [
        took("done", restart=(1_000, 9_000)),
        took("done", restart=(0, 3_000), verify=(3_000, 4_000)),
        took("done", restart=(0, 4_000)),
        took("failed", restart=(0, 600_000)),
        took("running", restart=(0, None)),
        took("done", verify=(0, None)),
    ]
    assert usual_step_ms(runs, "restart") == 4_000
    assert usual_step_ms(runs, "verify") == 1_000
    assert usual_step_ms(runs, "rescale_state") is None
