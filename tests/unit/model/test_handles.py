"""State handles are immutable and validated."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from statecore.errors import RedistributionError
from statecore.model.handles import DistributionMode, KeyedStateHandle, OperatorStateHandle, StatePartitions
from statecore.model.key_groups import KeyGroupRange


def handle() -> OperatorStateHandle:
    return OperatorStateHandle("op/0", {"offsets": StatePartitions(DistributionMode.SPLIT, (0, 7))})


def test_modes_are_written_as_their_values():
    assert [mode.value for mode in DistributionMode] == ["split", "union", "broadcast"]
    assert DistributionMode("union") is DistributionMode.UNION


def test_a_handle_keeps_a_copy_that_nobody_can_change():
    states = {"a": StatePartitions(DistributionMode.SPLIT, (0,))}
    taken = OperatorStateHandle("f", states)
    states["b"] = StatePartitions(DistributionMode.UNION, (1,))
    assert list(taken.states) == ["a"]
    with pytest.raises(TypeError):
        taken.states["c"] = states["b"]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        taken.path = "g"  # type: ignore[misc]


def test_handles_can_be_compared_hashed_pickled_and_copied():
    assert handle() == handle()
    assert len({handle(), handle()}) == 1
    assert pickle.loads(pickle.dumps(handle())) == handle()
    assert copy.deepcopy(handle()) == handle()
    keyed = KeyedStateHandle("k", KeyGroupRange(0, 3))
    assert pickle.loads(pickle.dumps(keyed)) == keyed


def test_a_list_of_offsets_becomes_a_tuple():
    assert StatePartitions(DistributionMode.SPLIT, [0, 3]).offsets == (0, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("offsets", [(-1,), (True,), (1.0,), ("0",), (0, None)])
def test_offsets_that_are_no_addresses_are_refused(offsets):
    with pytest.raises(RedistributionError, match="offsets"):
        StatePartitions(DistributionMode.SPLIT, offsets)


def test_a_mode_that_is_only_text_is_refused():
    with pytest.raises(RedistributionError, match="DistributionMode"):
        StatePartitions("split", (0,))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["", None, 3])
def test_a_handle_without_a_path_is_refused(path):
    with pytest.raises(RedistributionError, match="path"):
        OperatorStateHandle(path, {})
    with pytest.raises(RedistributionError, match="path"):
        KeyedStateHandle(path, KeyGroupRange(0, 1))


def test_parts_of_a_wrong_type_are_refused():
    with pytest.raises(RedistributionError, match="StatePartitions"):
        OperatorStateHandle("f", {"a": (0, 1)})  # type: ignore[dict-item]
    with pytest.raises(RedistributionError, match="KeyGroupRange"):
        KeyedStateHandle("f", (0, 1))  # type: ignore[arg-type]
