#!/usr/bin/env bash
# Runs once, on an empty server: creates a database with its own role for Airflow, and another for the catalog. The
# programs that use the catalog are no owners; catalog-init grants them what they need.
set -euo pipefail

psql --username "$POSTGRES_USER" --set ON_ERROR_STOP=1 \
    --set airflow_password="$AIRFLOW_DB_PASSWORD" --set catalog_password="$CATALOG_DB_PASSWORD" \
    --set supervisor_password="$SUPERVISOR_DB_PASSWORD" --set driver_password="$DRIVER_DB_PASSWORD" \
    --set steps_password="$STEPS_DB_PASSWORD" <<'SQL'
CREATE ROLE airflow LOGIN PASSWORD :'airflow_password';
CREATE DATABASE airflow OWNER airflow;
REVOKE CONNECT ON DATABASE airflow FROM PUBLIC;
CREATE ROLE catalog LOGIN PASSWORD :'catalog_password';
CREATE DATABASE catalog OWNER catalog;
REVOKE CONNECT ON DATABASE catalog FROM PUBLIC;
CREATE ROLE statecore_supervisor;
CREATE ROLE statecore_driver;
CREATE ROLE statecore_airflow;
GRANT CONNECT ON DATABASE catalog TO statecore_supervisor, statecore_driver, statecore_airflow;
CREATE ROLE supervisor LOGIN PASSWORD :'supervisor_password' IN ROLE statecore_supervisor;
CREATE ROLE driver LOGIN PASSWORD :'driver_password' IN ROLE statecore_driver;
CREATE ROLE steps LOGIN PASSWORD :'steps_password' IN ROLE statecore_airflow;
SQL
