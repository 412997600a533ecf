"""What cannot be rescaled is refused by name, and what can be is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from statecore.errors import CheckpointRefusedError
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.logs import STATE_PARTITIONS
from statecore.queries.reading.operators import GROUPS, KINDS
from statecore.queries.reading.refusals import ENCODING, GROUPS_FORMAT, JOIN_FORMAT, STRICT_DISTRIBUTION, refuse
from tests.unit.queries.handmade import HDFS, JOIN, JOIN_STORES, PANDAS, ROCKSDB, Handmade, Operator, make

THE_JOIN = Operator(JOIN, JOIN_STORES)


def refused(made: Handmade, partitions: int | None = 3) -> str:
    with pytest.raises(CheckpointRefusedError) as refusal:
        refuse(open_checkpoint(str(made.root)), partitions)
    message = str(refusal.value)
    # What was found, what was expected, what to do.
    assert message.startswith("found ") and "; expected " in message and message.count("; ") >= 2
    return message


@pytest.mark.parametrize("name", KINDS)
def test_covered_operators_are_not_refused(tmp_path: Path, name: str) -> None:
    stores = JOIN_STORES if name == JOIN else ("default",)
    made = make(tmp_path / "checkpoint", Operator(name, stores), Operator(name, stores), provider=ROCKSDB, pending=True)
    refuse(open_checkpoint(str(made.root)), 3)


@pytest.mark.parametrize(
    ("name", "found", "remedy"),
    [
        ("globalLimit", "a limit", "drop the limit"),
        ("StatefulStreamlineAggregate", "real-time mode", "another trigger"),
        ("somethingNew", "the operator 'somethingNew'", "a release of statecore that knows it"),
    ],
)
def test_other_operators_are(tmp_path: Path, name: str, found: str, remedy: str) -> None:
    message = refused(make(tmp_path / "checkpoint", Operator(), Operator(name)))
    assert found in message and remedy in message and "operator 1" in message


def test_metadata_without_schemas_is_refused_and_not_called_damage(tmp_path: Path) -> None:
    made = make(tmp_path / "checkpoint", Operator(PANDAS, version=2), provider=ROCKSDB)
    path = "state/0/_metadata/v2/0"
    # So did a build of Spark write it before the release of 4.0.
    version, metadata = (made.root / path).read_text().split("\n")
    found = json.loads(metadata)
    for store in found["stateStoreInfo"]:
        (store["stateSchemaFilePath"],) = store.pop("stateSchemaFilePaths")
    made.write(path, f"{version}\n{json.dumps(found)}")
    message = refused(made)
    assert f"found no schema files in the metadata of operator 0 of {made.root}" in message
    assert "run one batch of the query on Spark 4.3" in message


@pytest.mark.parametrize(
    ("provider", "state_format", "is_covered"),
    [
        (HDFS, "1", False),
        (HDFS, "2", True),
        (HDFS, "3", False),
        (HDFS, None, False),
        (ROCKSDB, "1", False),
        (ROCKSDB, "2", True),
        (ROCKSDB, "3", True),
        (ROCKSDB, "4", False),
        (ROCKSDB, None, False),
    ],
)
def test_joins_by_their_state_format(tmp_path: Path, provider: str, state_format: str | None, is_covered: bool) -> None:
    made = make(tmp_path / "checkpoint", THE_JOIN, provider=provider)
    made.change_conf(1, **{JOIN_FORMAT.replace(".", "__"): state_format})
    if is_covered:
        refuse(open_checkpoint(str(made.root)), 3)
    else:
        assert f"join of state format {state_format or 1}" in refused(made)


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("state_format", ["1", None])
def test_groups_with_state_of_format_1(tmp_path: Path, name: str, state_format: str | None) -> None:
    made = make(tmp_path / "checkpoint", Operator(name))
    refuse(open_checkpoint(str(made.root)), 3)
    made.change_conf(1, **{GROUPS_FORMAT.replace(".", "__"): state_format})
    assert f"{name} with state format 1" in refused(made)


def test_the_join_format_matters_to_joins_alone(tmp_path: Path) -> None:
    made = make(tmp_path / "checkpoint", Operator(), conf={JOIN_FORMAT: "4"})
    refuse(open_checkpoint(str(made.root)), 3)


def test_spark_before_4_0(tmp_path: Path) -> None:
    made = make(tmp_path / "checkpoint", Operator())
    shutil.rmtree(made.root / "state/0/_metadata")
    message = refused(made)
    assert "Spark before 4.0" in message and "run one batch of the query on Spark 4.3" in message


def test_continuous_processing(tmp_path: Path) -> None:
    made = make(tmp_path / "checkpoint")
    made.write("offsets/1", 'v1\n\n{"0":3}')
    assert "continuous processing" in refused(made)


def test_a_query_without_state(tmp_path: Path) -> None:
    assert "a query without state needs no rescale" in refused(make(tmp_path / "checkpoint"))


def test_state_in_avro(tmp_path: Path) -> None:
    assert "state encoded as avro" in refused(make(tmp_path / "checkpoint", Operator(), conf={ENCODING: "avro"}))


def test_another_provider(tmp_path: Path) -> None:
    assert "the state store provider org.example.Store" in refused(
        make(tmp_path / "checkpoint", Operator(), provider="org.example.Store")
    )


def test_transform_with_state_needs_rocksdb(tmp_path: Path) -> None:
    assert "transformWithState on the HDFS-backed provider" in refused(
        make(tmp_path / "checkpoint", Operator(PANDAS, version=2))
    )


@pytest.mark.parametrize("strict", ["false", None])
def test_a_layout_that_depends_on_the_plan(tmp_path: Path, strict: str | None) -> None:
    made = make(tmp_path / "checkpoint", Operator())
    made.change_conf(1, **{STRICT_DISTRIBUTION.replace(".", "__"): strict})
    assert STRICT_DISTRIBUTION in refused(made)


def test_a_repartition_by_spark_that_is_half_done(tmp_path: Path) -> None:
    made = make(tmp_path / "checkpoint", Operator(), pending=True)
    made.change_conf(2, spark__sql__shuffle__partitions="7")
    assert "an unfinished repartition by Spark" in refused(made)


class TestNumbers:
    @pytest.fixture
    def made(self, tmp_path: Path) -> Handmade:
        return make(tmp_path / "checkpoint", Operator())

    @pytest.mark.parametrize("partitions", [0, -1])
    def test_none(self, made: Handmade, partitions: int) -> None:
        assert f"found {partitions} state partitions; expected at least 1" in refused(made, partitions)

    def test_the_same(self, made: Handmade) -> None:
        message = refused(made, 2)
        assert "2 state partitions" in message and "statecore checkpoint clone" in message

    def test_not_asked_for(self, made: Handmade) -> None:
        refuse(open_checkpoint(str(made.root)))

    def test_operators_that_differ(self, tmp_path: Path) -> None:
        made = make(tmp_path / "other", Operator(partitions=2), Operator(partitions=4))
        assert "operators with 2 and 4 state partitions" in refused(made)

    def test_metadata_that_differs_from_the_log(self, made: Handmade) -> None:
        made.change_conf(1, spark__sql__shuffle__partitions="7")
        assert "2 state partitions in the metadata" in refused(made)

    def test_the_internal_setting_counts_where_it_is_logged(self, made: Handmade) -> None:
        internal = {STATE_PARTITIONS.replace(".", "__"): "2"}
        made.change_conf(1, spark__sql__shuffle__partitions="7", **internal)
        refuse(open_checkpoint(str(made.root)), 3)
