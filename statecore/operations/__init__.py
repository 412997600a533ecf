"""Operations on jobs, the same from the shell and from Airflow."""
