"""The command that starts a program on Spark: ``spark-submit`` in client mode, with its configuration in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from statecore.cluster.spark_home import spark_home
from statecore.errors import ConfigurationError
from statecore.extras import refuse_pyspark_client
from statecore.private_files import make_private_folder, write_private

# As SparkContext accepts them; another scheme may belong to a cluster manager that the user added to Spark.
_MASTER = re.compile(
    r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|[a-z]\w*://\S+"
)


def require_master(master_url: str) -> None:
    """Check that Spark knows such a master; whether one runs there is not asked.

    Raises:
        ConfigurationError: It does not.

    """
    if not _MASTER.fullmatch(master_url):
        raise ConfigurationError(
            f"found the master {master_url!r}; expected local[n], spark://host:port, yarn or k8s://https://host:port; "
            "correct --master"
        )


def spark_submit(
    master_url: str, name: str, conf: Mapping[str, str], properties: Path, entry_point: Path, *arguments: str
) -> list[str]:
    """Return the command that runs a program as the application ``name``.

    The configuration may hold secrets, and every user of the machine sees a command. So it goes into the file
    ``properties``, which only this user may read; keep the file until the program has started.

    Raises:
        ConfigurationError: Spark is missing, or pyspark-client is installed.

    """
    # Refuse here, too: the program's refusal would only be in its log.
    refuse_pyspark_client()
    make_private_folder(properties.parent)
    write_private(properties, "".join(f"{_escaped(key, ' :=#!')}={_escaped(value)}\n" for key, value in conf.items()))
    return [
        *(str(spark_home() / "bin" / "spark-submit"), "--master", master_url, "--deploy-mode", "client"),
        *("--name", name),
        # With a file of its own, Spark would ignore conf/spark-defaults.conf.
        *("--properties-file", str(properties), "--load-spark-defaults"),
        *(str(entry_point), *arguments),
    ]


def _escaped(text: str, special: str = "") -> str:
    """Return a text as ``java.util.Properties`` reads it; UTF-16 units stand for all that it could misread."""
    return "".join(each if " " <= each <= "~" and each not in "\\" + special else _units(each) for each in text)


def _units(character: str) -> str:
    encoded = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{encoded[at]:02x}{encoded[at + 1]:02x}" for at in range(0, len(encoded), 2))
