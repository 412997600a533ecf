"""The keys and key groups with most of a subtask's work, as its commit tells them.

Where the function is called for one key after the other, they are found by the time of its calls (``CallTimes``); where
it takes many keys at once, or runs for a short time, by rows (``KeySample``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import starmap
from operator import attrgetter

from statecore.runtime.messages import KeyGroupShare, KeyShare
from statecore.runtime.worker.call_times import CallTimes
from statecore.runtime.worker.key_sample import KeySample
from statecore.snapshot.manifest import FieldRef
from statecore.state import HeapKeyedStateBackend
from statecore.state.tables import Key

_LEAST_SHARE = 0.05
_MOST_CHARACTERS = 100


class HeavyKeys:
    """What a subtask learns about its keys in an epoch.

    Args:
        fields: The fields of the key.
        keyed: The subtask's state.

    Attributes:
        rows: Takes all rows with a key.
        calls: Is told when the function is called.

    """

    def __init__(self, fields: Sequence[FieldRef], keyed: HeapKeyedStateBackend) -> None:
        self._names = [field.name for field in fields]
        self.rows = KeySample(fields)
        self.calls = CallTimes(keyed)

    def key_shares(self) -> tuple[KeyShare, ...]:
        """Return the keys with at least a twentieth of the work, the heaviest first."""
        found = self._source().keys(_LEAST_SHARE)
        heavy = [KeyShare(self._text(key), share, key_group) for key, key_group, share in found]
        return tuple(sorted(heavy, key=attrgetter("share"), reverse=True))

    def key_group_shares(self) -> tuple[KeyGroupShare, ...]:
        """Return the key groups with at least a twentieth of the work, the heaviest first."""
        heavy = starmap(KeyGroupShare, self._source().key_groups(_LEAST_SHARE))
        return tuple(sorted(heavy, key=attrgetter("share"), reverse=True))

    def _source(self) -> CallTimes | KeySample:
        return self.calls if self.calls.known() else self.rows

    def _text(self, key: Key) -> str:
        """Return a key for people, on one line; a long one is cut, and keeps apart from others by a digest."""
        # PostgreSQL takes no NUL in a text, and a terminal obeys other control characters.
        values = [repr(str(value))[1:-1] for value in key]
        named = zip(self._names, values, strict=True)
        text = values[0] if len(values) == 1 else ", ".join(f"{name}={value}" for name, value in named)
        if len(text) <= _MOST_CHARACTERS:
            return text
        digest = f"…{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        return text[: _MOST_CHARACTERS - len(digest)] + digest
