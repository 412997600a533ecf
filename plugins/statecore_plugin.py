"""The one file Airflow searches for plugins; operators and triggers lie in the package beside it."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class StatecorePlugin(AirflowPlugin):
    """Makes the package visible as a plugin; pages and links of the web view hang themselves in here."""

    name = "statecore"
