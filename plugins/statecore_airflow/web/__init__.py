"""The jobs' pages in Airflow: a FastAPI app that the plugin mounts in Airflow's API server.

Who may see what is Airflow's to say: every route, also of a script or a picture, asks for the permission to read the
DAG ``rescale``, a plan for that to trigger it, a driver's log for that to read its logs (``access``).

No route changes anything. The page submits a rescale to Airflow's own REST API, as its Trigger form does, with the
user's own login: permission, check of the form's values and audit log are Airflow's. So there is nothing here that a
page of somebody else could have a browser do; and Airflow's API takes JSON alone and a cookie that no other site's POST
carries.
"""

from statecore_airflow.web.app import create_app

__all__ = ["create_app"]
