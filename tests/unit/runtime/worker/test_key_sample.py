"""The heaviest keys and key groups of a subtask, found in a sample of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statecore.model import KeyGroupRange
from statecore.runtime.worker import key_sample
from statecore.runtime.worker.heavy_keys import HeavyKeys
from statecore.runtime.worker.key_sample import SIZE
from statecore.snapshot.manifest import FieldRef
from statecore.state import HeapKeyedStateBackend
from statecore.testing import ManualClock


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sample, "_RANDOM", np.random.default_rng(7))


class Sampled:
    """Samples rows; all keys have the key group of their last character, or of 0."""

    def __init__(self, **types: str) -> None:
        self.names = list(types)
        fields = [FieldRef(name=name, type=type_) for name, type_ in types.items()]
        self.heavy = HeavyKeys(fields, HeapKeyedStateBackend(8, KeyGroupRange(0, 7), ManualClock(0)))

    def add(self, rows: pa.StructArray) -> None:
        last = [str(key)[-1] for key in rows.field(self.names[0]).to_pylist()]
        self.heavy.rows.add(rows, self.names, pa.array([int(each) if each.isdigit() else 0 for each in last]))

    def heaviest(self) -> list[tuple[str, float]]:
        return [(key, share) for key, share, _ in self.heavy.key_shares()]


def rows(keys: list[Any], data_type: pa.DataType | None = None) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(keys, data_type), pa.nulls(len(keys))], names=["k", "n"])


@pytest.mark.parametrize("part", [7, 1_000, 50_000])
def test_a_key_with_most_rows_is_found_whatever_parts_they_come_in(part: int) -> None:
    # It comes in the last parts alone, so that it is not found where only the first rows count.
    keys = ["cold" + str(n) for n in range(20_000)] + ["hot"] * 30_000
    sample = Sampled(k="string")
    for start in range(0, len(keys), part):
        sample.add(rows(keys[start : start + part]))
        assert len(sample.heavy.rows._keys) <= SIZE
    ((key, share),) = sample.heaviest()
    assert key == "hot" and share == pytest.approx(0.6, abs=0.07)


@pytest.mark.parametrize("part", [512, 4_096, 16_384])
def test_keys_that_take_turns_have_the_same_share(part: int) -> None:
    sample = Sampled(k="int")
    for _ in range(0, 65_536, part):
        sample.add(rows([n % 8 for n in range(part)], pa.int32()))
    assert sorted(key for key, _ in sample.heaviest()) == [str(n) for n in range(8)]
    assert max(share for _, share in sample.heaviest()) < 0.2


def test_few_rows_are_counted_one_by_one() -> None:
    sample = Sampled(k="string")
    assert sample.heaviest() == []
    sample.add(rows(["a"] * 30 + ["b"]))
    sample.add(rows(["c"] * 8 + ["d"]))
    assert sample.heaviest() == [("a", 0.75), ("c", 0.2)]


def test_rows_are_counted_by_key_group_too_and_rows_without_a_record_are_not() -> None:
    sample = Sampled(k="string")
    keys = rows([*(f"key {n}7" for n in range(20)), *(f"key {n}4" for n in range(10)), "key 1"])
    sample.add(pa.concat_arrays([keys, pa.nulls(40, keys.type)]))
    assert sample.heavy.key_group_shares() == ((7, 20 / 31), (4, 10 / 31))
    assert sample.heavy.key_shares() == ()


def test_keys_of_every_kind_are_counted_as_one_key_when_they_are_equal() -> None:
    sample = Sampled(k="array<double>")
    sample.add(rows([[float("nan")], [-0.0], [0.0], [float("nan")]], pa.list_(pa.float64())))
    assert dict(sample.heaviest()) == {"(nan,)": 0.5, "(0.0,)": 0.5}


def test_a_key_is_written_for_people() -> None:
    records = pa.StructArray.from_arrays(
        [pa.array(["c1", "x\x00\x1b[1m\n"]), pa.array([4, None], pa.int64())], names=["customer", "shop"]
    )
    sample = Sampled(customer="string", shop="bigint")
    sample.add(records)
    assert {key for key, _ in sample.heaviest()} == {"customer=c1, shop=4", r"customer=x\x00\x1b[1m\n, shop=None"}


def test_long_keys_that_begin_alike_stay_apart_when_they_are_cut() -> None:
    sample = Sampled(k="string")
    sample.add(rows(["é" * 200 + "a", "é" * 200 + "b"]))
    (one, _), (other, _) = sample.heaviest()
    assert one != other and len(one) == len(other) == 100
