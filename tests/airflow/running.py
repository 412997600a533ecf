"""Runs operators one by one as Airflow does, without Airflow's processes."""

from __future__ import annotations

import asyncio
import importlib
from types import SimpleNamespace
from typing import Any

from airflow.sdk.exceptions import TaskDeferred
from airflow.sdk.serde import deserialize, serialize
from statecore_airflow.operators.lease import BeginRescaleOperator
from statecore_airflow.operators.step import StepOperator

from statecore.operations.changes import BeginRescale, Step

RUN = "manual__2026-01-02T03:04:05.678901+00:00"
USER = "ann"
NAME = "manual__2026-01-02T03-04-05.678901-00-00-f8997394"


def task_of(step: type[Step], job: str, **arguments: Any) -> StepOperator:
    """Return the task of a step of a rescale."""
    if step is BeginRescale:
        return BeginRescaleOperator(job=job, **arguments)
    return StepOperator(step=step, job=job, **arguments)


def run_step(operator: Any, run: str = RUN, *, dag: str = "rescale", clears: int = 0, **params: Any) -> Any:
    """Run a step as Airflow does: deferred, its trigger goes through serialisation into another process."""
    context = context_of(run, dag, clears, **params)
    try:
        return operator.execute(context)
    except TaskDeferred as deferred:
        pending = deferred
    while True:
        event = fire(pending)
        try:
            return getattr(operator, pending.method_name)(context, event)
        except TaskDeferred as deferred:
            pending = deferred


def context_of(run: str = RUN, dag: str = "rescale", clears: int = 0, **params: Any) -> Any:
    """Return what steps take from the context of a DAG run that was cleared so often."""
    by = SimpleNamespace(triggering_user_name=USER, clear_number=clears)
    return {"run_id": run, "dag": SimpleNamespace(dag_id=dag), "dag_run": by, "params": params}


def sent(trigger: Any) -> Any:
    """Return the trigger as it arrives in the triggerer."""
    classpath, arguments = trigger.serialize()
    module, _, name = classpath.rpartition(".")
    received: Any = deserialize(serialize(arguments))
    return getattr(importlib.import_module(module), name)(**received)


def fire(deferred: TaskDeferred) -> dict[str, str]:
    """Return the event with which a deferred step goes on."""
    trigger = sent(deferred.trigger)

    async def first() -> Any:
        return await anext(trigger.run())

    payload: dict[str, str] = asyncio.run(first()).payload
    return payload
