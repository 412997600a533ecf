"""Links that tasks show in Airflow, and the addresses of the web pages."""
