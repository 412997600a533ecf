#!/usr/bin/env bash
# Runs once, on an empty server: creates a database with its own role for Airflow, and another for the catalog.
set -euo pipefail

psql --username "$POSTGRES_USER" --set ON_ERROR_STOP=1 \
    --set airflow_password="$AIRFLOW_DB_PASSWORD" --set catalog_password="$CATALOG_DB_PASSWORD" <<'SQL'
CREATE ROLE airflow LOGIN PASSWORD :'airflow_password';
CREATE DATABASE airflow OWNER airflow;
REVOKE CONNECT ON DATABASE airflow FROM PUBLIC;
CREATE ROLE catalog LOGIN PASSWORD :'catalog_password';
CREATE DATABASE catalog OWNER catalog;
REVOKE CONNECT ON DATABASE catalog FROM PUBLIC;
SQL
