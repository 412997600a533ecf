"""Airflow's side of savepoints and rescales: operators, triggers, settings from connections."""
