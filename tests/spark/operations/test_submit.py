"""Commands that start drivers, as Spark's own parser of them reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from statecore.operations.kinds import PROGRAMS
from tests.support.submit import command

STREAM = PROGRAMS / "stream.py"


DRAIN = {"spark.decommission.enabled": "true", "spark.storage.decommission.enabled": "true"}


CALL_SITES = "spark.python.sql.dataFrameDebugging.enabled"


# Spark asks for it before it looks at anything else.
ENVIRONMENT = {"HADOOP_CONF_DIR": "/etc/hadoop"}


ODD = {"spark.x": r"a\b # !é: €😀" + "\nspark.y=1", "spark.k=:#!\\ é": "1", "spark.empty": ""}


KUBERNETES = {"spark.kubernetes.container.image": "registry/statecore:1", "spark.driver.host": "10.0.0.7"}


@pytest.mark.parametrize(
    ("master_url", "conf", "seen"),
    [
        ("local[2]", {"spark.x": "a=b c", "statecore.cleanup.grace": "2h"}, {"spark.x": "a=b c"}),
        ("local[2]", ODD, ODD),
        ("spark://h:1", {"spark.cores.max": "2"}, {"spark.cores.max": "2", **DRAIN}),
        ("spark://h:1", {"spark.decommission.enabled": "false"}, {**DRAIN, "spark.decommission.enabled": "false"}),
        ("yarn", {"spark.yarn.queue": "billing"}, {"spark.yarn.queue": "billing", **DRAIN}),
        ("local[2]", {}, {CALL_SITES: "false"}),
        ("local[2]", {CALL_SITES: "true"}, {CALL_SITES: "true"}),
        ("k8s://https://h:6443", KUBERNETES, {**KUBERNETES, **DRAIN}),
    ],
)
def test_spark_reads_from_the_command_what_the_job_says(
    spark: Any, tmp_path: Path, master_url: str, conf: Mapping[str, str], seen: Mapping[str, str]
) -> None:
    program, *arguments = command(tmp_path, master_url, conf)
    assert program.endswith("/bin/spark-submit")
    jvm = spark.sparkContext._jvm
    to_scala = jvm.org.apache.spark.api.python.PythonUtils
    read = jvm.org.apache.spark.deploy.SparkSubmitArguments(to_scala.toSeq(arguments), to_scala.toScalaMap(ENVIRONMENT))
    assert read.master() == master_url
    assert (read.deployMode(), read.name(), read.primaryResource()) == ("client", "j", f"file:{STREAM}")
    assert read.childArgs().mkString(" ") == "--job j --generation 1"
    properties = read.sparkProperties()
    assert {key: properties.get(key).get() for key in seen} == seen
    assert not properties.contains("statecore.cleanup.grace")


def test_the_defaults_of_the_installation_stay_and_a_job_overrides_them(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.x default\nspark.y default\n")
    arguments = command(tmp_path, "local[2]", {"spark.x": "job"})[1:]
    jvm = spark.sparkContext._jvm
    to_scala = jvm.org.apache.spark.api.python.PythonUtils
    environment = to_scala.toScalaMap({"SPARK_CONF_DIR": str(tmp_path)})
    read = jvm.org.apache.spark.deploy.SparkSubmitArguments(to_scala.toSeq(arguments), environment).sparkProperties()
    assert {key: read.get(key).get() for key in ("spark.x", "spark.y")} == {"spark.x": "job", "spark.y": "default"}
