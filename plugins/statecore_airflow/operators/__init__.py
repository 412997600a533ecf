"""Operators: thin adapters between Airflow's tasks and ``statecore.operations``."""
