"""Operator state against what Flink's own backend did with the same scripts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from statecore import (
    DistributionMode,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateBackend,
    StateTtlConfig,
)
from statecore.errors import StateError
from tests.support.golden import golden

CASES = golden("operator_backend")
MODES = {
    DistributionMode.SPLIT: "SPLIT_DISTRIBUTE",
    DistributionMode.UNION: "UNION",
    DistributionMode.BROADCAST: "BROADCAST",
}


class _Script:
    """Plays one script."""

    def __init__(self) -> None:
        self.backend = OperatorStateBackend()
        self.states: dict[str, Any] = {}
        self.snapshots: dict[str, Any] = {}

    def play(self, step: dict[str, Any]) -> Any:
        match step["op"]:
            case "get_list_state" | "get_union_list_state" | "get_broadcast_state" as get:
                self.states[step["var"]] = getattr(self.backend, get)(_descriptor(step))
            case "names":
                return self.backend.registered_state_names()
            case "broadcast_names":
                return self.backend.registered_broadcast_state_names()
            case "same_object":
                return self.states[step["a"]] is self.states[step["b"]]
            case "snapshot_begin":
                self.snapshots[step["id"]] = self.backend.snapshot()
            case "snapshot_finish":
                return self._described(step["id"])
            case "snapshot":
                self.snapshots[step["id"]] = self.backend.snapshot()
                return self._described(step["id"])
            case "restore":
                self.backend.restore(self.snapshots[id_] for id_ in step["ids"])
            case _:
                return _used(self.states[step["var"]], step)
        return None

    def _described(self, id_: str) -> dict[str, Any]:
        return {
            name: {"mode": MODES[state.mode], "partitions": len(state.elements)}
            for name, state in self.snapshots[id_].items()
        }


def _descriptor(step: dict[str, Any]) -> ListStateDescriptor | MapStateDescriptor:
    ttl = StateTtlConfig(timedelta(milliseconds=step["ttl"])) if "ttl" in step else None
    if step["op"] == "get_broadcast_state":
        return MapStateDescriptor(step["name"], step["key_type"], step["value_type"], ttl)
    return ListStateDescriptor(step["name"], step["type"], ttl)


def _used(state: Any, step: dict[str, Any]) -> Any:
    match step["op"]:
        case "get":
            return list(state.get())
        case "add":
            return state.add(step["value"])
        case "add_all" | "update" as write:
            return getattr(state, write)(step["values"])
        case "clear":
            return state.clear()
        case "bget":
            return state.get(step["key"])
        case "bput":
            return state.put(step["key"], step["value"])
        case "bremove":
            return state.remove(step["key"])
        case "bentries":
            return sorted([key, value] for key, value in state.items())
    raise AssertionError(f"no such step: {step}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']}-{case['tag']}")
def test_operator_state_behaves_as_flink_recorded_it(case: dict[str, Any]) -> None:
    script = _Script()
    for number, step in enumerate(case["steps"]):
        if "raises" in step:
            with pytest.raises(StateError):
                script.play(step)
        else:
            assert script.play(step) == step["result"], f"step {number}: {step}"


def test_the_golden_file_has_scripts_of_every_mode() -> None:
    seen = {step["op"] for case in CASES for step in case["steps"]}
    assert {"get_list_state", "get_union_list_state", "get_broadcast_state", "restore", "snapshot_finish"} <= seen
