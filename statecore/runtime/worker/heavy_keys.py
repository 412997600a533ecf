"""The keys and key groups with most of a subtask's work, for its commit.

They are measured by the time of calls (``CallTimes``) where the function is called key by key, and by rows
(``KeySample``) where it gets many keys at once or runs for a short time.
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
    """Measures the keys of a subtask in an epoch.

    Args:
        fields: The fields of the key.
        keyed: The subtask's state.

    Attributes:
        rows: Samples the rows with a key.
        calls: Samples the calls of the function.

    """

    def __init__(self, fields: Sequence[FieldRef], keyed: HeapKeyedStateBackend) -> None:
        self._names = [field.name for field in fields]
        self.rows = KeySample(fields)
        self.calls = CallTimes(keyed)

    def key_shares(self) -> tuple[KeyShare, ...]:
        """Return the keys with at least a twentieth of the work, the heaviest first."""
        shares = self._source().keys(_LEAST_SHARE)
        heavy = [KeyShare(self._text(key), share, key_group) for key, key_group, share in shares]
        return tuple(sorted(heavy, key=attrgetter("share"), reverse=True))

    def key_group_shares(self) -> tuple[KeyGroupShare, ...]:
        """Return the key groups with at least a twentieth of the work, the heaviest first."""
        heavy = starmap(KeyGroupShare, self._source().key_groups(_LEAST_SHARE))
        return tuple(sorted(heavy, key=attrgetter("share"), reverse=True))

    def _source(self) -> CallTimes | KeySample:
        return self.calls if self.calls.known() else self.rows

    def _text(self, key: Key) -> str:
        """Return a key as text, on one line; a long one is cut, and a digest distinguishes it."""
        # PostgreSQL takes no NUL in a text, and a terminal obeys other control characters.
        values = [repr(str(value))[1:-1] for value in key]
        named = zip(self._names, values, strict=True)
        text = values[0] if len(values) == 1 else ", ".join(f"{name}={value}" for name, value in named)
        if len(text) <= _MOST_CHARACTERS:
            return text
        digest = f"…{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        return text[: _MOST_CHARACTERS - len(digest)] + digest
