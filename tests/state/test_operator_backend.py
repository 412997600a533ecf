"""Operator list state, against Flink's recorded behaviour and by its own promises."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from statecore import DistributionMode, ListStateDescriptor, OperatorStateBackend, StateTtlConfig
from statecore.errors import StateConflictError, StateError
from tests.conftest import GOLDEN

MODES = {"SPLIT_DISTRIBUTE": DistributionMode.SPLIT}
KNOWN = {
    "get_list_state", "add", "add_all", "update", "clear", "get", "same_object", "names",
    "snapshot", "snapshot_begin", "snapshot_finish", "restore",
}  # fmt: skip


def scripts() -> list[dict[str, Any]]:
    """Return Flink's scripts that use list state alone; a TTL on operator state is refused here, see below."""
    cases = [json.loads(line) for line in (GOLDEN / "operator_backend.jsonl").read_text().splitlines()]
    return [case for case in cases if all(s["op"] in KNOWN and "ttl" not in s for s in case["steps"])]


class _Script:
    """Plays one script; a restore starts from a new backend, as it does in Flink and in every epoch here."""

    def __init__(self) -> None:
        self.backend = OperatorStateBackend()
        self.variables: dict[str, Any] = {}
        self.snapshots: dict[str, Any] = {}

    def play(self, step: dict[str, Any]) -> Any:
        match step["op"]:
            case "get_list_state":
                descriptor = ListStateDescriptor(step["name"], step["type"])
                self.variables[step["var"]] = self.backend.get_list_state(descriptor)
            case "get":
                return list(self.variables[step["var"]].get())
            case "add":
                self.variables[step["var"]].add(step["value"])
            case "add_all" | "update" as write:
                getattr(self.variables[step["var"]], write)(step["values"])
            case "clear":
                self.variables[step["var"]].clear()
            case "same_object":
                return self.variables[step["a"]] is self.variables[step["b"]]
            case "names":
                return sorted(self.backend.snapshot())
            case "snapshot_begin":
                self.snapshots[step["id"]] = self.backend.snapshot()
            case "snapshot_finish":
                return step["result"] and self.described(step["id"])
            case "snapshot":
                self.snapshots[step["id"]] = self.backend.snapshot()
                return self.described(step["id"])
            case "restore":
                self.backend = OperatorStateBackend()
                self.backend.restore(self.snapshots[id_] for id_ in step["ids"])
        return None

    def described(self, id_: str) -> dict[str, Any]:
        modes = {mode: name for name, mode in MODES.items()}
        return {
            name: {"mode": modes[state.mode], "partitions": len(state.elements)}
            for name, state in self.snapshots[id_].items()
        }


@pytest.mark.parametrize("case", scripts(), ids=lambda case: f"{case['id']}-{case['tag']}")
def test_list_state_behaves_as_flink_recorded_it(case: dict[str, Any]) -> None:
    script = _Script()
    for number, step in enumerate(case["steps"]):
        if "raises" in step:
            with pytest.raises(StateError):
                script.play(step)
            continue
        result, expected = script.play(step), step["result"]
        if step["op"] == "names":
            expected = sorted(expected)
        assert result == expected, f"step {number}: {step}"


def test_the_golden_file_has_scripts_of_list_state_alone() -> None:
    assert len(scripts()) >= 9


TYPED = ListStateDescriptor("waiting", "bigint")


@pytest.mark.parametrize("write", ["add", "add_all", "update"])
def test_none_is_refused_and_nothing_is_added(write: str) -> None:
    state = OperatorStateBackend().get_list_state(TYPED)
    state.add(1)
    with pytest.raises(StateError, match=r"found None .* operator state 'waiting'; expected values; leave"):
        getattr(state, write)(None if write == "add" else [2, None])
    assert list(state.get()) == [1]


def test_one_name_with_two_types_is_refused_also_when_it_was_restored() -> None:
    backend = OperatorStateBackend()
    backend.get_list_state(TYPED)
    restored = OperatorStateBackend()
    restored.restore([backend.snapshot()])
    for made in (backend, restored):
        with pytest.raises(StateConflictError, match=r"split list of string; expected split list of bigint"):
            made.get_list_state(ListStateDescriptor("waiting", "string"))


def test_snapshots_that_disagree_on_a_type_are_refused() -> None:
    snapshots = []
    for ddl in ("bigint", "string"):
        backend = OperatorStateBackend()
        backend.get_list_state(ListStateDescriptor("waiting", ddl))
        snapshots.append(backend.snapshot())
    with pytest.raises(StateConflictError, match="'waiting'"):
        OperatorStateBackend().restore(snapshots)


def test_a_time_to_live_is_refused_and_not_ignored() -> None:
    descriptor = ListStateDescriptor("x", "int", ttl=StateTtlConfig(timedelta(seconds=1)))
    with pytest.raises(StateError, match="only keyed state can expire"):
        OperatorStateBackend().get_list_state(descriptor)


def test_a_restored_state_that_nobody_asks_for_is_kept_with_its_strategy() -> None:
    source = OperatorStateBackend()
    source.get_list_state(ListStateDescriptor("waiting", "bigint", strategy="interleaved")).add_all([1, 2])
    middle = OperatorStateBackend()
    middle.restore([source.snapshot()])
    assert middle.snapshot() == source.snapshot()
    assert middle.snapshot()["waiting"].strategy == "interleaved"


def test_a_snapshot_is_equal_to_another_exactly_when_nothing_changed() -> None:
    backend = OperatorStateBackend()
    state = backend.get_list_state(TYPED)
    state.add(1)
    before = backend.snapshot()
    list(state.get())
    assert backend.snapshot() == before
    state.update([1])
    assert backend.snapshot() == before
    state.add(1)
    assert backend.snapshot() != before
