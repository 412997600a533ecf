"""What users may import: nothing leaks by accident, everything is documented, the error tree is as drawn."""

from __future__ import annotations

import inspect
import re

import pytest

import statecore
import statecore.runtime
import statecore.testing
from statecore import errors

PUBLIC = {
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "ListState",
    "MapState",
    "ReducingState",
    "RuntimeContext",
    "ValueState",
    "BatchProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointedFunction",
    "CoGroupFunction",
    "CoProcessFunction",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "DistributionMode",
    "DynamicEventTimeSessionWindows",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "GlobalWindows",
    "HeapKeyedStateBackend",
    "JoinFunction",
    "KeyGroupRange",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateHandle",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "OperatorStateBackend",
    "OperatorStateHandle",
    "OutputTag",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "PurgingTrigger",
    "ReducingStateDescriptor",
    "SlidingEventTimeWindows",
    "StatePartitions",
    "StateTtlConfig",
    "StateVisibility",
    "StatecoreError",
    "TimeDomain",
    "TumblingEventTimeWindows",
    "UpdateType",
    "ValueStateDescriptor",
    "Window",
    "WindowFunction",
    "default_max_parallelism",
    "key_group_for",
    "key_group_range",
    "redistribute_keyed_state",
    "redistribute_operator_state",
    "run",
    "subtask_for_key_group",
}
RUNTIME = {
    "DeltaSink",
    "FunctionSink",
    "Job",
    "KafkaSink",
    "ParquetSink",
    "PostgresSink",
    "Sink",
    "StagedEpoch",
    "copy_savepoint",
    "kafka_options",
    "read_savepoint",
    "read_timers",
    "rewrite_savepoint",
    "write_savepoint",
}
TESTING = {
    "BatchOperatorHarness",
    "BroadcastOperatorHarness",
    "HarnessSnapshot",
    "KeyedOperatorHarness",
    "ManualClock",
    "TwoInputOperatorHarness",
    "physical",
}
MODULES = [(statecore, PUBLIC), (statecore.runtime, RUNTIME), (statecore.testing, TESTING)]


@pytest.mark.parametrize(("module", "names"), MODULES, ids=lambda value: getattr(value, "__name__", ""))
def test_exactly_these_names_are_public(module: object, names: set[str]) -> None:
    assert set(module.__all__) == names  # type: ignore[attr-defined]
    assert list(module.__all__) == sorted(module.__all__)  # type: ignore[attr-defined]


def test_who_looks_into_the_testing_module_finds_what_is_public() -> None:
    assert set(dir(statecore.testing)) == TESTING


def test_every_kind_of_function_state_and_window_that_the_design_names_is_public() -> None:
    """So that nothing is dropped from the package and from the list above in one go."""
    assert {
        "BroadcastProcessFunction", "KeyedBroadcastProcessFunction", "KeyedProcessFunction", "ProcessFunction",
        "CheckpointedFunction", "AggregateFunction", "AggregatingStateDescriptor", "ListStateDescriptor",
        "MapStateDescriptor", "ReducingStateDescriptor", "ValueStateDescriptor", "StateTtlConfig", "StateVisibility",
        "UpdateType", "TimeDomain", "OutputTag", "HeapKeyedStateBackend", "OperatorStateBackend",
    } <= set(statecore.__all__)  # fmt: skip


@pytest.mark.parametrize("module", [statecore, statecore.runtime], ids=lambda module: module.__name__)
def test_no_other_name_leaks_from_the_package(module: object) -> None:
    leaked = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert leaked <= set(module.__all__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(PUBLIC | RUNTIME | TESTING))
def test_a_public_name_and_its_public_methods_have_a_docstring(name: str) -> None:
    value = next(getattr(module, name) for module, names in MODULES if name in names)
    assert value.__doc__
    assert not value.__doc__.startswith(f"{name}("), "a dataclass's generated docstring says nothing"
    if inspect.isclass(value):
        for method, member in vars(value).items():
            if not method.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                assert inspect.getdoc(getattr(value, method)), f"{name}.{method}"


def _drawn() -> dict[str, str]:
    """Return the tree of the docstring as {error: parent}."""
    tree: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^((?:    |│   )*(?:[├└]── )?)(\w+Error)\b", line.removeprefix("    "))
        if found:
            depth = len(found.group(1)) // 4
            path[depth:] = [found.group(2)]
            if depth:
                tree[found.group(2)] = path[depth - 1]
    return tree


def test_the_error_tree_is_as_it_is_drawn() -> None:
    classes = [
        value for value in vars(errors).values() if inspect.isclass(value) and value.__module__ == errors.__name__
    ]
    real = {cls.__name__: cls.__mro__[1].__name__ for cls in classes if cls is not errors.StatecoreError}
    assert _drawn() == real
    assert len(real) > 20


def test_every_error_has_the_one_root_and_says_what_it_means() -> None:
    for name in _drawn():
        error = getattr(errors, name)
        assert issubclass(error, errors.StatecoreError)
        assert error.__doc__
        assert str(error("found x; expected y; do z")) == "found x; expected y; do z"
