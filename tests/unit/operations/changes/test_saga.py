"""How steps get their arguments from the parameters of a change."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from statecore.operations.changes import (
    STEPS,
    BeginRescale,
    RescaleRequest,
    RescaleState,
    Restart,
    Step,
    StopWithSavepoint,
    rescale_steps,
)


def test_a_rescale_in_one_process_gives_each_step_what_it_needs_of_the_request() -> None:
    request = RescaleRequest(job="j", parallelism=4, method="rewrite", max_parallelism=32, reason="backlog")
    made = {type(step): step.fields() for step in rescale_steps(Mock(), request, 60.0)}
    assert made[BeginRescale] == {"request": request}
    assert made[StopWithSavepoint] == {"reason": "backlog", "for_good": False, "request_id": None}
    assert made[RescaleState] == {"max_parallelism": 32, "rewrite_timeout_s": 60.0, "request_id": None}
    assert made[Restart] == {"max_parallelism": 32, "after": 0}


def test_parameters_reach_only_the_fields_that_are_meant_for_them() -> None:
    # Airflow passes on whatever a REST call has in its conf.
    step = StopWithSavepoint.of(Mock(), {"reason": "backlog", "for_good": True, "request_id": 7, "job": "j"})
    assert step.fields() == {"reason": "backlog", "for_good": False, "request_id": None}
    assert StopWithSavepoint.of(Mock(), {"reason": "a"}, reason="b", for_good=True).for_good


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_every_parameter_is_a_field_of_its_step(step: type[Step]) -> None:
    assert set(step.parameters) <= set(step.__dataclass_fields__) - {"change"}
