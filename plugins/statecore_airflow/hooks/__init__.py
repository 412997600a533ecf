"""Airflow's connections and configuration as typed settings."""
