"""The plugin, which Airflow finds by the entry point ``airflow.plugins``."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from statecore_airflow.links.addresses import MOUNT, VIEW, mounted


class StatecorePlugin(AirflowPlugin):
    """Adds the jobs' pages to Airflow's web view and to its navigation."""

    name = "statecore"
    external_views = [  # noqa: RUF012, it is how Airflow reads it
        {
            # Airflow's navigation cuts off a longer name.
            "name": "Streaming",
            "href": mounted(),
            "url_route": VIEW,
            "destination": "nav",
            "nav_top_level": True,
            # The icon has its own background, because Airflow's differs by theme and on the page that is shown.
            "icon": mounted("static/jobs.svg"),
        }
    ]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # Airflow declares a list, and reads it
        """The app, built only when the API server asks: every task loads this plugin, too, and needs no app."""
        from statecore_airflow.web import create_app

        return [{"name": "statecore", "url_prefix": f"/{MOUNT}", "app": create_app()}]
