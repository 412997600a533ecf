"""The heaviest keys of a subtask, found in a sample of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statecore.runtime.worker import key_sample
from statecore.runtime.worker.key_sample import SIZE, KeySample
from statecore.snapshot.manifest import FieldRef


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sample, "_RANDOM", np.random.default_rng(7))


def of(**types: str) -> KeySample:
    return KeySample([FieldRef(name=name, type=type_) for name, type_ in types.items()])


def rows(keys: list[Any], data_type: pa.DataType | None = None) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(keys, data_type), pa.nulls(len(keys))], names=["k", "n"])


@pytest.mark.parametrize("part", [7, 1_000, 50_000])
def test_a_key_with_most_rows_is_found_whatever_parts_they_come_in(part: int) -> None:
    # It comes in the last parts alone, so that it is not found where only the first rows count.
    keys = ["cold" + str(n) for n in range(20_000)] + ["hot"] * 30_000
    sample = of(k="string")
    for start in range(0, len(keys), part):
        sample.add(rows(keys[start : start + part]), ["k"])
        assert len(sample._keys) <= SIZE
    ((key, share),) = sample.heaviest()
    assert key == "hot" and share == pytest.approx(0.6, abs=0.07)


@pytest.mark.parametrize("part", [512, 4_096, 16_384])
def test_keys_that_take_turns_have_the_same_share(part: int) -> None:
    sample = of(k="int")
    for _ in range(0, 65_536, part):
        sample.add(rows([n % 8 for n in range(part)], pa.int32()), ["k"])
    assert sorted(key for key, _ in sample.heaviest()) == [str(n) for n in range(8)]
    assert max(share for _, share in sample.heaviest()) < 0.2


def test_few_rows_are_counted_one_by_one() -> None:
    sample = of(k="string")
    assert sample.heaviest() == ()
    sample.add(rows(["a"] * 30 + ["b"]), ["k"])
    sample.add(rows(["c"] * 8 + ["d"]), ["k"])
    assert sample.heaviest() == (("a", 0.75), ("c", 0.2))


def test_keys_of_every_kind_are_counted_as_one_key_when_they_are_equal() -> None:
    sample = of(k="array<double>")
    sample.add(rows([[float("nan")], [-0.0], [0.0], [float("nan")]], pa.list_(pa.float64())), ["k"])
    assert dict(sample.heaviest()) == {"(nan,)": 0.5, "(0.0,)": 0.5}


def test_a_key_is_written_for_people() -> None:
    records = pa.StructArray.from_arrays(
        [pa.array(["c1", "x\x00\x1b[1m\n"]), pa.array([4, None], pa.int64())], names=["customer", "shop"]
    )
    sample = of(customer="string", shop="bigint")
    sample.add(records, ["customer", "shop"])
    assert {key for key, _ in sample.heaviest()} == {"customer=c1, shop=4", r"customer=x\x00\x1b[1m\n, shop=None"}


def test_long_keys_that_begin_alike_stay_apart_when_they_are_cut() -> None:
    sample = of(k="string")
    sample.add(rows(["é" * 200 + "a", "é" * 200 + "b"]), ["k"])
    (one, _), (other, _) = sample.heaviest()
    assert one != other and len(one) == len(other) == 100
