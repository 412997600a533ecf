"""Runs one function over the records of one subtask: contexts, side outputs and life cycle; no engine in sight."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from statecore.errors import StatecoreError
from statecore.functions import CheckpointedFunction, KeyedProcessFunction, ListState, ValueState
from statecore.model import ListStateDescriptor, OutputTag, ValueStateDescriptor
from statecore.state.keyed import Clock, HeapKeyedStateBackend, Key
from statecore.state.operator import OperatorStateBackend

MAIN_OUTPUT = ""


class _KeyedStateStore:
    """Keyed state by descriptor, with the method names users know."""

    def __init__(self, backend: HeapKeyedStateBackend) -> None:
        self._backend = backend

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        return self._backend.get_value_state(descriptor)

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        return self._backend.get_list_state(descriptor)


class _RuntimeContext(_KeyedStateStore):
    def __init__(self, backend: HeapKeyedStateBackend, subtask: int, parallelism: int) -> None:
        super().__init__(backend)
        self.subtask = subtask
        self.parallelism = parallelism


@dataclass(frozen=True, slots=True)
class _InitializationContext:
    operator_state_store: OperatorStateBackend
    keyed_state_store: _KeyedStateStore
    restored: bool

    def is_restored(self) -> bool:
        return self.restored


@dataclass(frozen=True, slots=True)
class _SnapshotContext:
    epoch: int


class _ProcessContext:
    __slots__ = ("_backend", "_clock", "_emit")

    def __init__(self, backend: HeapKeyedStateBackend, clock: Clock, emit: Callable[[str, Any], None]) -> None:
        self._backend = backend
        self._clock = clock
        self._emit = emit

    def get_current_key(self) -> Key:
        key = self._backend.current_key
        assert key is not None
        return key

    def current_processing_time(self) -> int:
        return self._clock.now_ms()

    def output(self, tag: OutputTag, value: Any) -> None:
        self._emit(tag.name, value)


class ProcessOperator:
    """One function with its state.

    Args:
        function: The user's function, fresh.
        keyed: Keyed state of the subtask.
        operator: Operator state of the subtask.
        emit: Takes an output's tag name (``MAIN_OUTPUT`` for the main one) and its value.

    """

    def __init__(
        self,
        function: KeyedProcessFunction,
        keyed: HeapKeyedStateBackend,
        operator: OperatorStateBackend,
        emit: Callable[[str, Any], None],
        *,
        subtask: int,
        parallelism: int,
    ) -> None:
        self._function = function
        self._keyed = keyed
        self._operator = operator
        self._emit = emit
        self._context = _ProcessContext(keyed, keyed.clock, emit)
        self._runtime = _RuntimeContext(keyed, subtask, parallelism)

    def open(self, *, restored: bool) -> None:
        """Let the function get its states."""
        if isinstance(self._function, CheckpointedFunction):
            store = _KeyedStateStore(self._keyed)
            self._function.initialize_state(_InitializationContext(self._operator, store, restored))
        self._function.open(self._runtime)

    def process(self, records: Iterable[tuple[Key, int, Any]]) -> None:
        """Process records given as (key, key group, value), in order."""
        keyed, emit, context = self._keyed, self._emit, self._context
        process_element = self._function.process_element
        for key, key_group, value in records:
            keyed.set_current_key(key, key_group)
            try:
                outputs = process_element(value, context)
                if outputs is not None:
                    for output in outputs:
                        emit(MAIN_OUTPUT, output)
            except StatecoreError as error:
                error.add_note(f"while processing {value!r}")
                raise
        keyed.forget_current_key()

    def snapshot(self, epoch: int) -> None:
        """Let the function write what it holds outside of its states."""
        if isinstance(self._function, CheckpointedFunction):
            self._function.snapshot_state(_SnapshotContext(epoch))

    def close(self) -> None:
        """End the function."""
        self._function.close()
