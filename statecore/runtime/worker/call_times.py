"""Finds the keys that a subtask's calls of its function spend most time on.

Row counts miss a key with few, expensive rows, and timing every call would cost more than many calls take. So a thread
samples the current key about ten times a second, as a sampling profiler does. A key is seen in proportion to its time,
and the calls themselves take no longer. This covers all calls with a current key, such as for records and timers; a
call for a whole batch has none. A call that releases the GIL, for example to wait for a disk, is seen somewhat too
often.
"""

from __future__ import annotations

import _thread
import logging
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from statecore.runtime.worker.space_saving import Item, SpaceSaving
from statecore.state import HeapKeyedStateBackend
from statecore.state.tables import Key, split_scope

log = logging.getLogger(__name__)

# A look costs the change of two threads: 0.05 ms, and up to 1 ms where other processes wait for the same cores.
_APART_S = 0.1
# With fewer samples that have a key, shares mean nothing.
_LEAST = 10
# One sample may be chance.
_FEWEST_OF_A_KEY = 2
_COUNTERS = 64
_SWITCH_S = 0.0001
# Not the module's own generator, which functions may have seeded.
_random = random.Random().random  # noqa: S311 - not secret


class CallTimes:
    """Share of each key and key group in the time of a subtask's calls in an epoch.

    Args:
        keyed: The subtask's state, which knows the current key.

    Attributes:
        looks: Number of samples taken while the function was called.

    """

    def __init__(self, keyed: HeapKeyedStateBackend) -> None:
        self._keyed = keyed
        self._keys: SpaceSaving[tuple[Key, int]] = SpaceSaving(_COUNTERS)
        self._key_groups: SpaceSaving[int] = SpaceSaving(_COUNTERS)
        self.looks = 0
        self._found = 0
        self._calling = False
        self._begun = False
        self._ended = threading.Event()
        # Neither thread waits for the other to start or end, which takes as long as a small epoch on a busy machine.
        self._looking = threading.Lock()

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Look at the current key from time to time during the block."""
        if not self._begun:
            self._begin()
        self._calling = True
        try:
            yield
        finally:
            self._calling = False

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()
        with self._looking:
            self._calling = False

    def known(self) -> bool:
        """Return whether the calls took long enough to tell keys apart, and had a key most of the time."""
        return self._found >= max(_LEAST, self.looks / 2)

    def keys(self, least: float) -> Iterator[tuple[Key, int, float]]:
        """Yield the keys with at least a share (0 to 1) of the time, each with its key group and its share."""
        for (key, key_group), share in self._shares(self._keys, least):
            yield key, key_group, share

    def key_groups(self, least: float) -> Iterator[tuple[int, float]]:
        """Yield the key groups with at least a share (0 to 1) of the time, each with its share."""
        return self._shares(self._key_groups, least)

    def look(self) -> None:
        """Note the current key, if the function is being called."""
        with self._looking:
            if not self._calling:
                return
            keyed = self._keyed
            scope, key_group = keyed.scope, keyed.key_group
            if keyed.scope is not scope:
                # The function went on meanwhile, and the key group may be that of another key.
                return
            self.looks += 1
            if scope is not None:
                key = split_scope(scope)[0]
                self._found += 1
                self._keys.add((key, key_group))
                self._key_groups.add(key_group)

    def _begin(self) -> None:
        self._begun = True
        # For the whole worker: a waking thread waits this long for the GIL, unless a call releases it. With the default
        # of 5 ms it would sample only such calls.
        sys.setswitchinterval(_SWITCH_S)
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:
            # The machine has no thread left; rows then show the heavy keys.
            log.warning("no thread looks for keys with dear rows in this epoch", exc_info=True)

    def _run(self) -> None:
        # Not at even distances, which may be those of the calls.
        while not self._ended.wait(2 * _APART_S * _random()):
            self.look()

    def _shares(self, sketch: SpaceSaving[Item], least: float) -> Iterator[tuple[Item, float]]:
        for item, seen in sketch.counts():
            if seen >= max(_FEWEST_OF_A_KEY, least * self.looks):
                yield item, seen / self.looks
