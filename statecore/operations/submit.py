"""The command that starts a job's driver: ``spark-submit`` in client mode, on every kind of Spark master.

The driver runs on the supervisor's machine: there it has its log and its environment (the catalog's address), and the
supervisor sees it end. Only executors run elsewhere: on a standalone cluster, in YARN or in Kubernetes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from statecore.catalog import GenerationRecord, JobRecord
from statecore.cluster.spark_home import spark_environment
from statecore.cluster.spark_submit import spark_submit
from statecore.errors import ConfigurationError
from statecore.operations.kinds import StatecoreJob, kind_of
from statecore.redaction import SPARK_PATTERN
from statecore.topics.client_settings import VARIABLE as KAFKA_VARIABLE

CATALOG_VARIABLE = "STATECORE_CATALOG"
DRIVER_CATALOG_VARIABLE = "STATECORE_DRIVER_CATALOG"
"""Optional: the catalog's URL with the database role of drivers; ``{job}`` in it stands for the job's name."""

_DEPLOY_MODE = "spark.submit.deployMode"

# A decommissioned executor takes no new tasks, finishes its own, and hands over blocks that others may still fetch.
_DRAIN = {"spark.decommission.enabled": "true", "spark.storage.decommission.enabled": "true"}

# Spark notes the line of Python behind each part of an expression, for its error messages. An epoch builds a dozen, and
# that was 130 of its 280 calls into the JVM. A job may have it back.
_NO_CALL_SITES = {"spark.python.sql.dataFrameDebugging.enabled": "false"}

# Spark's own rule leaves private keys in plans, and so in the errors that quote them. A job may have its own.
_REDACTED = {"spark.redaction.regex": SPARK_PATTERN}

# Job code runs on executors. With a local master, the driver's environment would be that of their workers.
_NO_SECRETS = {f"spark.executorEnv.{name}": "" for name in (CATALOG_VARIABLE, KAFKA_VARIABLE)}


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """Builds the command that runs a generation of a job.

    Attributes:
        entry_point: The driver's program for jobs of statecore; None for their own.

    """

    entry_point: Path | None = None

    def __call__(self, job: JobRecord, generation: GenerationRecord) -> list[str]:
        """Return the command; see ``submit_command``."""
        kind = kind_of(job)
        own = self.entry_point if isinstance(kind, StatecoreJob) else None
        # One file a job, which its next driver replaces.
        properties = Path(generation.log_path).with_name(f"{job.name}.properties")
        arguments = ["--job", job.name, "--generation", str(generation.generation)]
        return submit_command(job, job.name, properties, own or kind.program, *arguments)


def driver_environment(job: str) -> dict[str, str]:
    """Return the environment of a job's driver: the only program on Spark that gets the catalog's URL."""
    own = os.environ.get(DRIVER_CATALOG_VARIABLE, "").replace("{job}", job)
    url = own or os.environ.get(CATALOG_VARIABLE)
    return spark_environment() | ({} if url is None else {CATALOG_VARIABLE: url})


def submit_command(job: JobRecord, name: str, properties: Path, entry_point: Path, *arguments: str) -> list[str]:
    """Return the command that runs a program on a job's Spark, with its configuration; see ``spark_submit``.

    Raises:
        ConfigurationError: The job sets another deploy mode, Spark is missing, or pyspark-client is installed.

    """
    mode = job.conf.get(_DEPLOY_MODE, "client")
    if mode != "client":
        raise ConfigurationError(
            f"found {_DEPLOY_MODE}={mode} in the configuration of job {job.name!r}; expected client: drivers run "
            "beside their supervisor, also for YARN and Kubernetes; remove it with "
            f"`register {job.name} --conf {_DEPLOY_MODE}=`, and run the supervisor where executors can reach it"
        )
    # Keys that are not Spark's are the driver's: it reads them from the catalog.
    conf = _NO_CALL_SITES | _REDACTED | {key: value for key, value in job.conf.items() if key.startswith("spark.")}
    if not job.master_url.startswith("local"):
        conf = _DRAIN | conf
    return spark_submit(job.master_url, name, conf | _NO_SECRETS, properties, entry_point, *arguments)
