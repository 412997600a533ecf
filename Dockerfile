# One image for Airflow, Spark and the supervisor, so that all run the same packages and the same Spark.
# Debian bookworm, because later releases have no OpenJDK 17.
FROM python:3.11.14-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/statecore

# The lock is complete. Without --no-deps pip would add pyspark-client, which overwrites files of pyspark.
COPY requirements.lock ./
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock

COPY LICENSE README.md pyproject.toml /usr/src/statecore/
COPY statecore /usr/src/statecore/statecore
COPY plugins /usr/src/statecore/plugins
RUN pip install --no-cache-dir --no-index --no-deps --no-build-isolation /usr/src/statecore

COPY dags dags
COPY examples examples
COPY docker docker

# Create the folders in the image, so that new volumes mounted there belong to this user.
RUN useradd --create-home --uid 1000 statecore \
    && mkdir -p /data /var/lib/statecore /opt/airflow/logs \
    && chown -R statecore: /data /var/lib/statecore /opt/airflow
USER statecore

ENV PYTHONUNBUFFERED=1 \
    PYSPARK_PYTHON=/usr/local/bin/python \
    PYSPARK_DRIVER_PYTHON=/usr/local/bin/python \
    AIRFLOW_HOME=/opt/airflow \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/statecore/dags \
    AIRFLOW__CORE__LOAD_EXAMPLES=False
