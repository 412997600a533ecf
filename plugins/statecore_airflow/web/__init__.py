"""The jobs' web pages in Airflow: a FastAPI app that the plugin mounts in Airflow's API server.

Airflow's permissions apply. Every route, even of a script or an image, requires permission to read the DAG ``rescale``;
a plan requires permission to trigger it, a driver log permission to read its logs (``access``).

No route changes anything. The page submits a rescale to Airflow's own REST API with the user's login, as the Trigger
form does; Airflow checks permission and values and writes the audit log. So cross-site
request forgery finds no route here, and Airflow's API itself accepts only JSON and a SameSite cookie.
"""

from statecore_airflow.web.app import create_app

__all__ = ["create_app"]
