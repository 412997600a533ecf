"""Keyed state with and without a time to live does what Flink 2.2.1 did with the same script."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    HeapKeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    StateVisibility,
    UpdateType,
    ValueStateDescriptor,
    key_group_for,
)
from statecore.errors import StatecoreError
from statecore.state.heap import KeyedSnapshot
from statecore.testing import ManualClock, physical
from tests.support.golden import golden

SCRIPTS = golden("ttl")
GROUPS = 128
UPDATES = {
    "Disabled": UpdateType.DISABLED,
    "OnCreateAndWrite": UpdateType.ON_CREATE_AND_WRITE,
    "OnReadAndWrite": UpdateType.ON_READ_AND_WRITE,
}
VISIBILITIES = {
    "NeverReturnExpired": StateVisibility.NEVER_RETURN_EXPIRED,
    "ReturnExpiredIfNotCleanedUp": StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP,
}


class Joined(AggregateFunction):
    def create_accumulator(self) -> str:
        return ""

    def add(self, value: str, accumulator: str) -> str:
        return f"{accumulator}+{value}" if accumulator else value

    def get_result(self, accumulator: str) -> str:
        return f"<{accumulator}>"

    def merge(self, a: str, b: str) -> str:
        return f"{a}+{b}"


def descriptor(kind: str, ttl: StateTtlConfig) -> Any:
    return {
        "value": lambda: ValueStateDescriptor("s", "string", ttl),
        "list": lambda: ListStateDescriptor("s", "string", ttl),
        "map": lambda: MapStateDescriptor("s", "string", "string", ttl),
        "reducing": lambda: ReducingStateDescriptor("s", "bigint", reduce=lambda a, b: a + b, ttl=ttl),
        "aggregating": lambda: AggregatingStateDescriptor("s", "string", aggregate=Joined(), ttl=ttl),
    }[kind]()


class Player:
    """Plays one script against a fresh backend."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.script = script
        self.settings = {key: script[key] for key in ("update", "visibility", "cleanup", "effective_ttl_ms")}
        self.clock = ManualClock()
        self.snapshots: dict[str, KeyedSnapshot] = {}
        self.key: str | None = None
        self.start()

    def start(self, restored: KeyedSnapshot | None = None, **overrides: Any) -> None:
        self.settings = {**self.settings, **overrides}
        if "ttl" in overrides:
            self.settings["effective_ttl_ms"] = overrides["ttl"]
        self.backend = HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), self.clock)
        if restored is not None:
            self.backend.restore([restored])
        ms = self.settings["effective_ttl_ms"]
        ttl = StateTtlConfig(
            timedelta.max if ms > timedelta.max // timedelta(milliseconds=1) else timedelta(milliseconds=ms),
            UPDATES[self.settings["update"]],
            VISIBILITIES[self.settings["visibility"]],
            cleanup_full_snapshot=self.settings["cleanup"].get("full_snapshot", False),
        )
        self.state: Any = self.backend.get_state(descriptor(self.script["state"], ttl))

    def play(self, step: dict[str, Any]) -> Any:
        self.clock.set(step["t"])
        op, args = step["op"], step["args"]
        special = getattr(self, f"on_{op}", None)
        return self.on_state(op, args) if special is None else special(*args)

    def on_key(self, key: str) -> None:
        self.backend.set_current_key((key,), key_group_for((key,), ["string"], GROUPS))

    def on_state(self, op: str, args: list[Any]) -> Any:
        name = {"entries": "items", "get": "value"}.get(op, op) if self.script["state"] == "value" else op
        found = getattr(self.state, {"entries": "items"}.get(name, name))(*args)
        if not hasattr(found, "__next__"):
            return found
        # A map's entries are recorded in the order of their keys.
        return sorted(found, key=str) if self.script["state"] == "map" else list(found)

    def on_get_first(self, count: int) -> list[Any]:
        return [element for _, element in zip(range(count), self.state.get(), strict=False)]

    def on_iter_remove(self, removed: str) -> list[Any]:
        seen = []
        for key, _ in self.state.items():
            seen.append(key)
            if key == removed:
                self.state.remove(key)
        return seen

    def on_keys_physical(self) -> list[str]:
        return sorted(key[0] for key in physical(self.backend, "s"))

    def on_snapshot(self, name: str) -> None:
        self.snapshots[name] = self.backend.snapshot()

    def on_snapshot_begin(self, name: str) -> None:
        self.snapshots[name] = self.backend.snapshot()

    def on_snapshot_finish(self, name: str) -> None:
        # The clean-up follows the clock at the moment of writing, which a file has and memory has not.
        if self.settings["cleanup"].get("full_snapshot"):
            self.snapshots[name] = self.backend.snapshot()

    def on_restore(self, name: str, overrides: dict[str, Any] | None = None) -> None:
        self.start(self.snapshots[name], **(overrides or {}))

    def stored(self) -> dict[str, Any]:
        return {key[0]: plain(stored) for key, stored in physical(self.backend, "s").items()}


def plain(stored: Any) -> Any:
    if isinstance(stored, dict):
        return sorted([key, plain(value)] for key, value in stored.items())
    if isinstance(stored, list | tuple):
        return [plain(item) for item in stored]
    return stored


def nothing(value: Any) -> Any:
    """Flink's null and its empty collections are all nothing; phys of a key with nothing is no key."""
    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if item not in (None, [], {})}
    return None if value in (None, [], {}) else value


def java_accident(step: dict[str, Any]) -> bool:
    """``golden/README.md``: null map keys, and ``put_all(null)``, which we refuse always."""
    return (step["op"] in ("put", "get", "contains") and step["args"][:1] == [None]) or (
        step["args"] == [None] and step["op"] == "put_all"
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script['id']}-{script['tag']}-{script['state']}")
def test_a_script_gives_what_flink_gave(script: dict[str, Any]) -> None:
    player = Player(script)
    null_key_stored = False
    for number, step in enumerate(script["steps"]):
        where = f"step {number}: {step}"
        if script["state"] == "map" and java_accident(step):
            with pytest.raises(StatecoreError):
                player.play(step)
            null_key_stored = null_key_stored or step["op"] == "put"
            continue
        if step.get("raises"):
            with pytest.raises(StatecoreError):
                player.play(step)
            continue
        result = player.play(step)
        assert nothing(plain(result)) == nothing(step["result"]), where
        expected = step["phys"]
        if null_key_stored:
            expected = {key: [entry for entry in entries if entry[0] is not None] for key, entries in expected.items()}
        assert nothing(player.stored()) == nothing(expected), where
