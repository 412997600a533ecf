"""A simulated job with an epoch cost of ``a + b · rows``, its source, and a loop that follows the policy."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from statecore.policy import Decision, EpochCost, Figures, PolicyMemory, PolicySettings, arriving, decide

LOOK_MS = 15_000
TICK_MS = 250


@dataclass
class SimulatedJob:
    """Epochs run back to back; each reads the backlog, at most ``epoch_limit`` rows.

    Attributes:
        arriving: Rows a second that come, by the time in milliseconds; what comes at once comes within one.
        fixed_ms, row_ms: What an epoch costs at parallelism 1.
        scaling: What of a larger parallelism helps, as in ``Throughput``.
        noise: How far an epoch's cost is off, as a part.
        trigger_ms: Shortest time from one epoch to the next.

    """

    arriving: Callable[[int], float]
    settings: PolicySettings
    parallelism: int = 2
    max_parallelism: int = 128
    fixed_ms: float = 300.0
    row_ms: float = 0.2
    scaling: float = 1.0
    noise: float = 0.1
    epoch_limit: int = 50_000
    trigger_ms: int = 1_000
    rescale_ms: int = 30_000
    seed: int = 0
    now_ms: int = 0
    memory: PolicyMemory = field(default_factory=PolicyMemory)
    decisions: list[tuple[int, Decision]] = field(default_factory=list)
    backlog: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._epochs: list[EpochCost] = []
        self._ran: list[tuple[int, int]] = []
        self._arrived: list[tuple[int, float]] = []
        self._came = self._read = 0.0
        self._settled_ms = self._began_ms = 0
        self._next_epoch_ms, self._next_look_ms = 0, LOOK_MS
        self._running: tuple[int, EpochCost] | None = None

    def run(self, until_ms: int) -> None:
        while self.now_ms < until_ms:
            self._came += self.arriving(self.now_ms) * TICK_MS / 1000
            self._step()
            if self.now_ms >= self._next_look_ms:
                self._look()
                self._next_look_ms += LOOK_MS
            self.now_ms += TICK_MS

    @property
    def waiting(self) -> float:
        return self._came - self._read

    def figures(self) -> Figures:
        epochs = tuple(self._epochs[-800:])
        ran_ms = sum(duration_ms for ended_ms, duration_ms in self._ran[-200:] if ended_ms > self.now_ms - 60_000)
        return Figures(
            job="simulated",
            at_ms=self.now_ms,
            parallelism=self.parallelism,
            max_parallelism=self.max_parallelism,
            workers=None,
            hindrance="rescaling" if self.now_ms < self._settled_ms else None,
            settled_ms=self._settled_ms,
            epochs=epochs,
            arriving=arriving(self._arrived[-50:], epochs, round(self.waiting), self.now_ms),
            processed=0.0,
            waiting=round(self.waiting),
            busy=min(1.0, ran_ms / 60_000),
            rescale_ms=self.rescale_ms,
        )

    def _step(self) -> None:
        if self._running is not None and self.now_ms >= self._running[0]:
            # The policy runs at intervals, so the hold time ends a little late.
            epoch = replace(self._running[1], duration_ms=self.now_ms - self._began_ms)
            ended_ms = self.now_ms
            self._ran.append((ended_ms, epoch.duration_ms))
            if epoch.rows:
                self._epochs.append(EpochCost(ended_ms, epoch.parallelism, epoch.rows, epoch.duration_ms))
            self._read += epoch.rows
            self._running = None
        if self._running is None and self.now_ms >= max(self._next_epoch_ms, self._settled_ms):
            rows = min(self.epoch_limit, int(self.waiting))
            row_ms = self.row_ms / self.parallelism**self.scaling
            cost_ms = (self.fixed_ms + row_ms * rows) * (1 + self.noise * self._random.uniform(-1, 1))
            if not rows:
                cost_ms = self.fixed_ms / 3
            self._running = (self.now_ms + int(cost_ms), EpochCost(0, self.parallelism, rows, int(cost_ms)))
            self._began_ms = self.now_ms
            self._next_epoch_ms = self.now_ms + self.trigger_ms

    def _look(self) -> None:
        self._arrived.append((self.now_ms, self._came))
        self.backlog.append((self.now_ms, self.waiting))
        made = decide(self.figures(), self.settings, self.memory)
        self.memory = made.memory
        if made.action != "stay":
            self.decisions.append((self.now_ms, made))
            self.parallelism = made.parallelism
            # A rescale loses the running epoch, and the first epoch afterwards is slow.
            self._running = None
            self._settled_ms = self.now_ms + self.rescale_ms
            cold = EpochCost(self._settled_ms, self.parallelism, 1_000, 9_000)
            self._epochs.append(cold)
