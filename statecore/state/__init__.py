"""Live state of one subtask: what a function reads and writes while an epoch runs."""

from statecore.state.keyed import (
    Clock,
    HeapKeyedStateBackend,
    HeapListState,
    HeapValueState,
    KeyedSnapshot,
    StateTable,
)
from statecore.state.operator import OperatorListSnapshot, OperatorListState, OperatorStateBackend
from statecore.state.process import ProcessOperator

__all__ = [
    "Clock",
    "HeapKeyedStateBackend",
    "HeapListState",
    "HeapValueState",
    "KeyedSnapshot",
    "OperatorListSnapshot",
    "OperatorListState",
    "OperatorStateBackend",
    "ProcessOperator",
    "StateTable",
]
