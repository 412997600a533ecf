"""Runs one function over what one subtask gets: records, broadcast records, time; no engine in sight."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from statecore.errors import ConfigurationError, StatecoreError, StateMigrationError
from statecore.functions import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    TimeDomain,
    UserFunction,
)
from statecore.model import MapStateDescriptor
from statecore.state.contexts import (
    NO_WATERMARK,
    BroadcastElementContext,
    BroadcastStates,
    ElementContext,
    InitializationContext,
    KeyedElementContext,
    KeyedReadOnlyBroadcastContext,
    KeyedTimers,
    Moment,
    ReadOnlyBroadcastContext,
    SnapshotContext,
    SubtaskContext,
    TimerContext,
    no_timers,
)
from statecore.state.keyed import Clock, HeapKeyedStateBackend
from statecore.state.operator import OperatorStateBackend
from statecore.state.tables import Key, split_scope
from statecore.state.timers import TimerTable

MAIN_OUTPUT = ""

Record = tuple[Key, int, Any, int | None]
"""Key, key group, value and event time in ms; the key is empty for a function without keys."""


class ProcessOperator:
    """One function with its state.

    Args:
        function: The user's function, fresh.
        keyed: Keyed state of the subtask; None for a function without keys.
        operator: Operator state of the subtask.
        emit: Takes an output's tag name (``MAIN_OUTPUT`` for the main one) and its value.
        clock: The epoch's time.
        broadcast: The broadcast states that were declared.
        watermark: Where event time stands, in ms.

    Raises:
        ConfigurationError: The function is of no known kind, or there are keys and it takes none, or the reverse.

    """

    def __init__(
        self,
        function: UserFunction,
        keyed: HeapKeyedStateBackend | None,
        operator: OperatorStateBackend,
        emit: Callable[[str, Any], None],
        *,
        clock: Clock,
        subtask: int,
        parallelism: int,
        broadcast: tuple[MapStateDescriptor, ...] = (),
        watermark: int = NO_WATERMARK,
    ) -> None:
        require_fit(function, keyed=keyed is not None, broadcast=bool(broadcast))
        self._function = function
        self._keyed = keyed
        self._operator = operator
        self._emit = emit
        self._declared = broadcast
        self._moment = Moment(clock.now_ms, watermark)
        self._runtime = SubtaskContext(keyed, subtask, parallelism)
        self._timers = no_timers(self._moment) if keyed is None else KeyedTimers(self._moment, keyed)
        self._element: ElementContext
        self._broadcast: BroadcastElementContext

    @property
    def watermark(self) -> int:
        """Where event time stands, in ms; -2^63 before the first watermark."""
        return self._moment.watermark

    def open(self, *, restored: bool, allow_non_restored_state: bool = False) -> None:
        """Let the function get its states.

        Raises:
            StateMigrationError: The function left out a state that was restored, or declares it otherwise.

        """
        states = BroadcastStates(self._operator, self._declared)
        self._make_contexts(states)
        if isinstance(self._function, CheckpointedFunction):
            self._function.initialize_state(InitializationContext(self._operator, self._keyed, restored=restored))
        self._function.open(self._runtime)
        if not allow_non_restored_state:
            self._require_all_registered()
        if self._keyed is not None:
            self._keyed.seal()

    def process(self, records: Iterable[Record]) -> None:
        """Process records, in order."""
        keyed, moment, context = self._keyed, self._moment, self._element
        process_element = self._function.process_element
        try:
            for key, key_group, value, timestamp in records:
                if keyed is not None:
                    keyed.set_current_key(key, key_group)
                moment.timestamp = timestamp
                try:
                    self._emit_all(process_element(value, context))  # type: ignore[arg-type]
                except StatecoreError as error:
                    error.add_note(f"while processing {value!r}")
                    raise
        finally:
            if keyed is not None:
                keyed.forget_current_key()

    def process_broadcast(self, value: Any, timestamp: int | None) -> None:
        """Process one record of the broadcast stream."""
        function = self._function
        if not isinstance(function, BroadcastProcessFunction | KeyedBroadcastProcessFunction):
            raise ConfigurationError(
                f"found a broadcast record for a {type(function).__name__}; expected a BroadcastProcessFunction or "
                "KeyedBroadcastProcessFunction; connect the stream to a broadcast one"
            )
        self._moment.timestamp = timestamp
        self._emit_all(function.process_broadcast_element(value, self._broadcast))

    def advance_watermark(self, watermark: int) -> None:
        """Let event time go on and fire the timers that it reaches; it never goes back."""
        if watermark >= self._moment.watermark:
            self._moment.watermark = watermark
            if isinstance(self._timers, KeyedTimers):
                self._fire(self._timers.event, watermark, TimeDomain.EVENT_TIME)

    def fire_processing_time(self) -> None:
        """Fire the timers that the epoch's time has reached."""
        if isinstance(self._timers, KeyedTimers):
            self._fire(self._timers.processing, self._moment.now_ms(), TimeDomain.PROCESSING_TIME)

    def snapshot(self, epoch: int) -> None:
        """Let the function write what it holds outside of its states."""
        if isinstance(self._function, CheckpointedFunction):
            self._function.snapshot_state(SnapshotContext(epoch))

    def close(self) -> None:
        """End the function."""
        self._function.close()

    def _make_contexts(self, states: BroadcastStates) -> None:
        moment, emit, keyed, timers = self._moment, self._emit, self._keyed, self._timers
        function = self._function
        if isinstance(function, KeyedBroadcastProcessFunction) and keyed is not None:
            self._element = KeyedReadOnlyBroadcastContext(moment, emit, timers, keyed, states)
        elif isinstance(function, BroadcastProcessFunction):
            self._element = ReadOnlyBroadcastContext(moment, emit, timers, states)
        elif keyed is not None:
            self._element = KeyedElementContext(moment, emit, timers, keyed)
        else:
            self._element = ElementContext(moment, emit, timers)
        self._broadcast = BroadcastElementContext(moment, emit, states, keyed)

    def _require_all_registered(self) -> None:
        names = [] if self._keyed is None else self._keyed.unregistered()
        names += self._operator.unregistered()
        if names:
            raise StateMigrationError(
                f"found restored state {', '.join(map(repr, names))} that {type(self._function).__name__} did not "
                "register; expected every restored state to be registered in open() or initialize_state(), or it would "
                "be left behind in silence; register it, or allow non-restored state"
            )

    def _emit_all(self, outputs: Iterable[Any] | None) -> None:
        if outputs is not None:
            emit = self._emit
            for output in outputs:
                emit(MAIN_OUTPUT, output)

    def _fire(self, timers: TimerTable, now_ms: int, domain: TimeDomain) -> None:
        keyed, function = self._keyed, self._function
        assert keyed is not None
        assert isinstance(function, KeyedProcessFunction | KeyedBroadcastProcessFunction)
        assert isinstance(self._element, KeyedElementContext)
        context: Any = TimerContext(self._element, domain)
        try:
            while (timer := timers.pop_due(now_ms)) is not None:
                key, namespace = split_scope(timer.scope)
                keyed.set_current_namespace(namespace)
                keyed.set_current_key(key, timer.key_group)
                self._moment.timestamp = timer.timestamp
                try:
                    self._emit_all(function.on_timer(timer.timestamp, context))
                except StatecoreError as error:
                    error.add_note(f"while the timer {timer.timestamp} of key {key!r} fired")
                    raise
        finally:
            keyed.set_current_namespace(None)
            keyed.forget_current_key()


def require_fit(function: object, *, keyed: bool, broadcast: bool) -> None:
    """Check that a function can run on a stream.

    Raises:
        ConfigurationError: It is no function, or one for another kind of stream.

    """
    kinds: dict[tuple[bool, bool], type] = {
        (False, False): ProcessFunction,
        (True, False): KeyedProcessFunction,
        (False, True): BroadcastProcessFunction,
        (True, True): KeyedBroadcastProcessFunction,
    }
    expected = kinds[keyed, broadcast]
    if not isinstance(function, expected):
        stream = f"a {'keyed ' if keyed else ''}stream {'with' if broadcast else 'without'} broadcast state"
        raise ConfigurationError(
            f"found {function!r} for {stream}; expected a {expected.__name__}; subclass it and give an object of it"
        )
