"""The command that would start a driver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from statecore.catalog import Catalog
from statecore.operations.submit import SparkSubmit


def command(
    tmp_path: Path, master_url: str, conf: Mapping[str, str] = MappingProxyType({}), submit: SparkSubmit | None = None
) -> list[str]:
    with Catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        catalog.create_schema()
        job = catalog.jobs.register(
            "j", artifact="/a.py", store="/s", master_url=master_url, conf=conf, parallelism=2, max_parallelism=128
        )
        return (submit or SparkSubmit())(job, catalog.generations.claim("j", log_path=f"{tmp_path}/logs/1.log"))
