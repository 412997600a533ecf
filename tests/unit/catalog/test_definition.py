"""A job's definition, as its store keeps it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from statecore.catalog import Catalog
from statecore.catalog.rebuild import rebuild_job
from statecore.errors import ManifestError, MissingFileError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.job_definition import read_definition, write_definition
from tests.contracts.catalog.rebuild import DEFINITION, store

__all__ = ["store"]


class TestDefinition:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("spark.ssl.keyStorePassword", "x"), ("password", "x"), ("DB_PASSWD", "x"), ("apiToken", "x"),
            ("spark.hadoop.fs.s3a.secret.key", "x"), ("spark.hadoop.fs.s3a.access.key", "x"), ("access_key_id", "x"),
            ("api-key", "x"), ("output_dsn", "x"), ("database", "postgresql://me:hunter2@host/orders"),
            ("spark.driver.extraJavaOptions", "-Djavax.net.ssl.trustStorePassword=x"), ("out", "host=h password=x"),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("where", ["conf", "settings"])
    def test_what_looks_like_a_secret_is_not_written_down_and_its_name_is(
        self, catalog: Catalog, store: CheckpointStore, where: str, name: str, value: str
    ) -> None:
        public = getattr(DEFINITION, where)
        write_definition(store.files, msgspec.structs.replace(DEFINITION, **{where: {**public, name: value}}))
        read = read_definition(store.files)
        assert (getattr(read, where), read.withheld) == (public, (name,))
        assert value == "x" or value.encode() not in store.files.read("job.json")
        assert rebuild_job(catalog, store.files.url).withheld == (name,)

    @pytest.mark.parametrize("value", ["s3://bucket/orders", "k=v", "/data/in", "jdbc:postgresql://host/orders"])
    def test_what_does_not_is(self, store: CheckpointStore, value: str) -> None:
        definition = msgspec.structs.replace(DEFINITION, settings={"input": value})
        write_definition(store.files, definition)
        assert read_definition(store.files) == definition

    def test_a_folder_without_one_is_refused_with_what_to_do(self, catalog: Catalog, tmp_path: Path) -> None:
        with pytest.raises(MissingFileError, match=rf"no job.json in {tmp_path}; expected .*; give the root"):
            rebuild_job(catalog, str(tmp_path))

    @pytest.mark.parametrize(
        "data", [b"", b"\xff", b"[" * 100_000, b'{"name": "orders"}', b'{"name": "orders", "x": 1}']
    )
    def test_a_damaged_one_is_refused_by_name(self, catalog: Catalog, store: CheckpointStore, data: bytes) -> None:
        store.files.write("job.json", data)
        with pytest.raises(
            ManifestError, match=r"job.json, which is not a job definition .*; register the job by hand"
        ):
            rebuild_job(catalog, store.files.url)
        assert catalog.jobs.all() == []
