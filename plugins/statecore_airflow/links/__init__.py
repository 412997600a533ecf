"""Links that tasks show in Airflow."""
