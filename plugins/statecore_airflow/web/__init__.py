"""The jobs' web pages in Airflow: a FastAPI app that the plugin mounts in Airflow's API server.

Airflow's permissions apply. Every route, even of a script or an image, requires permission to read the DAG ``rescale``;
a plan requires permission to trigger its DAG, a driver log permission to read its logs (``access``).

Two routes change something: one aborts a run, one turns a policy on or off; both refuse requests of other sites. For
all other changes the page triggers a DAG by Airflow's own REST API with the user's login, as the Trigger form does;
Airflow checks permission and values and writes the audit log.
"""

from statecore_airflow.web.app import create_app

__all__ = ["create_app"]
