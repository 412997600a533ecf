"""Ids of DAG runs in the catalog: the run, and how often it was cleared."""

from __future__ import annotations

from airflow.sdk import Context

from statecore_airflow.links.addresses import without_clears


def run_key(context: Context) -> str:
    """Return the run's id, with ``#1``, ``#2``, … once it was cleared.

    A retry continues what an attempt before it has begun; a run that a person clears does its work again, so it must
    not find the records of the time before. Airflow counts the clears, and by default refuses ``#`` in the id of a run.
    """
    clears = getattr(context.get("dag_run"), "clear_number", None) or 0
    return f"{context['run_id']}#{clears}" if clears else str(context["run_id"])


def change_id(context: Context) -> str:
    """Return a DAG run's change id in the catalog: its key, after the DAG's name and a colon.

    Runs of the DAG ``rescale`` have no prefix. Other DAGs prefix their name, because an id that a person chose is
    unique only within its DAG.
    """
    dag = context["dag"].dag_id
    return run_key(context) if dag == "rescale" else f"{dag}:{run_key(context)}"


def is_same_run(one: str, other: str) -> bool:
    """Return whether two change ids are of one DAG run, cleared or not."""
    return without_clears(one) == without_clears(other)
