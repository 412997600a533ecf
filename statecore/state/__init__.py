"""Live state of one subtask: what a function reads and writes while an epoch runs."""

from statecore.state.heap import HeapKeyedStateBackend, KeyedSnapshot
from statecore.state.keyed_backend import Clock, KeyedStateBackend
from statecore.state.operator_state import OperatorStateBackend
from statecore.state.process import ProcessOperator
from statecore.state.tables import StateTable, TableSchema, Window

__all__ = [
    "Clock",
    "HeapKeyedStateBackend",
    "KeyedSnapshot",
    "KeyedStateBackend",
    "OperatorStateBackend",
    "ProcessOperator",
    "StateTable",
    "TableSchema",
    "Window",
]
