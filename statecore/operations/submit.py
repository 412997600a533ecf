"""The command that starts a job's driver: ``spark-submit`` in client mode, on every kind of Spark master.

The driver runs on the supervisor's machine: there it has its log and its environment (the catalog's address), and the
supervisor sees it end. Only executors run elsewhere: on a standalone cluster, in YARN or in Kubernetes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from statecore.catalog import GenerationRecord, JobRecord
from statecore.cluster.spark_home import spark_home
from statecore.errors import ConfigurationError
from statecore.extras import refuse_pyspark_client

_DEPLOY_MODE = "spark.submit.deployMode"

# A decommissioned executor takes no new tasks, finishes its own, and hands over blocks that others may still fetch.
_DRAIN = {"spark.decommission.enabled": "true", "spark.storage.decommission.enabled": "true"}


PROGRAMS = Path(__file__).resolve().parents[1] / "runtime" / "programs"
"""The programs that spark-submit starts; as files, because it takes no module."""


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """Builds the command that runs a generation of a job.

    Attributes:
        entry_point: The driver's program; None for ``stream.py`` of ``PROGRAMS``.

    """

    entry_point: Path | None = None

    def __call__(self, job: JobRecord, generation: GenerationRecord) -> list[str]:
        """Return the command; see ``submit_command``."""
        entry_point = self.entry_point or PROGRAMS / "stream.py"
        return submit_command(job, job.name, entry_point, "--job", job.name, "--generation", str(generation.generation))


def submit_command(job: JobRecord, name: str, entry_point: Path, *arguments: str) -> list[str]:
    """Return the command that runs a program on a job's Spark, with its configuration, as the application ``name``.

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
    # Refuse here, too: the driver's refusal would only be in its log.
    refuse_pyspark_client()
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", job.master_url, "--deploy-mode", "client"]
    command += ["--name", name]
    # Keys that are not Spark's are the driver's: it reads them from the catalog.
    conf = {key: value for key, value in job.conf.items() if key.startswith("spark.")}
    if not job.master_url.startswith("local"):
        conf = _DRAIN | conf
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, str(entry_point), *arguments]
