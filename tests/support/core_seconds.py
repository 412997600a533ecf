"""What each test costs: the core-seconds (user + system) of every process that it runs, not the time that it waits.

Each pytest worker samples the processes below it, and those that carry its mark in their environment: a driver that a
supervisor starts detached is no child of the worker any more. The totals are printed by folder, and the dearest tests;
``--core-seconds FILE`` also adds each test's figure to a JSON file, ``{node id: core-seconds}``. What a fixture of the
session starts is paid by the test that first asks for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

DEAREST = 20
"""Number of tests that are printed one by one."""
WORTH_A_LINE = 1.0
"""Core-seconds of a test that is printed at least."""
SAMPLE_S = 1.0
"""Time between two samples. A detached process is charged up to the last sample before its end."""
FRESH_S = 0.2
"""Age up to which a sample still counts as now: thousands of quick tests start no process, and a sample takes 5 ms."""
MARK = "STATECORE_TEST_WORKER"
_COST = "core_seconds"

Process = tuple[int, float]
"""A process by its id and the time of its start, because ids are used again."""


class Meter:
    """The core-seconds that this process and all that it started have used so far."""

    def __init__(self) -> None:
        self._mark = f"{os.getpid()}"
        os.environ[MARK] = self._mark
        self._ours: dict[Process, bool] = {}
        self._used: dict[Process, float] = {}
        self._parents: dict[Process, int] = {}
        self._reaped: dict[int, float] = {}
        self._ended = 0.0
        self._lock = threading.Lock()
        self._total, self._sampled_at = 0.0, 0.0
        threading.Thread(target=self._keep_sampling, name="core-seconds", daemon=True).start()

    def read(self) -> float:
        """Return the core-seconds used until now."""
        with self._lock:
            if time.monotonic() - self._sampled_at > FRESH_S:
                self._total, self._sampled_at = self._sample(), time.monotonic()
            return self._total + time.process_time()

    def _keep_sampling(self) -> None:
        while True:
            threading.Event().wait(SAMPLE_S)
            self.read()

    def _sample(self) -> float:
        """Return what all but this process itself have used, what it has waited for included."""
        parents, used, reaped = dict[Process, int](), dict[Process, float](), dict[int, float]()
        for process in self._living():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                key = (process.pid, process.create_time())
                parents[key] = process.ppid()
                used[key] = reaped[process.pid] = times.children_user + times.children_system
                if process.pid != os.getpid():
                    used[key] += times.user + times.system
        self._ended += self._unreaped(used.keys(), reaped)
        self._used, self._parents, self._reaped = used, parents, reaped
        return sum(used.values()) + self._ended

    def _unreaped(self, living: Collection[Process], reaped: Mapping[int, float]) -> float:
        """Return what processes have used that ended since the last sample, and that no living parent of theirs has.

        A process leaves its times to the parent that waits for it. One that was detached leaves them to init, and where
        the parent ignores its children, as Spark's daemon of Python workers does, nobody has them.
        """
        left: dict[int, float] = defaultdict(float)
        for key in self._used.keys() - living:
            left[self._parents[key]] += self._used[key]
            self._ours.pop(key, None)
        taken = {parent: reaped[parent] - self._reaped.get(parent, 0.0) for parent in left if parent in reaped}
        return sum(max(0.0, seconds - taken.get(parent, 0.0)) for parent, seconds in left.items())

    def _living(self) -> Iterator[psutil.Process]:
        """Yield the processes that are this one, below it, or marked; a child comes after its parent."""
        ours = {os.getpid()}
        for process in sorted(psutil.process_iter(), key=lambda each: each.pid):
            with contextlib.suppress(psutil.Error):
                key = (process.pid, process.create_time())
                if process.ppid() in ours or self._ours.get(key) or process.pid in ours or self._marked(process, key):
                    ours.add(process.pid)
                    self._ours[key] = True
                    yield process

    def _marked(self, process: psutil.Process, key: Process) -> bool:
        if key not in self._ours:
            self._ours[key] = process.environ().get(MARK) == self._mark
        return self._ours[key]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--core-seconds", metavar="FILE", help="add what each test costs, in core-seconds, to a JSON file")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Costs(), "core-seconds-costs")
    # With workers, the controller runs no tests.
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(_Measurement(Meter()), "core-seconds-measurement")


class _Measurement:
    """In the process that runs tests: adds its cost to the report of each test's teardown."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._before = meter, meter.read()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            now = self._meter.read()
            report.user_properties.append((_COST, now - self._before))
            self._before = now
        return report


class _Costs:
    """In the process that the user started: collects the costs and prints them."""

    def __init__(self) -> None:
        self._of: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if report.when == "teardown" and name == _COST and isinstance(value, float):
                self._of[report.nodeid] = value

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if not self._of:
            return
        if file := config.getoption("--core-seconds"):
            self._add_to(Path(file))
        folders: dict[str, float] = defaultdict(float)
        for test, cost in self._of.items():
            folders["/".join(test.split("::")[0].split("/")[:3])] += cost
        terminalreporter.section(f"core-seconds: {sum(self._of.values()):.0f}")
        for folder, cost in sorted(folders.items(), key=lambda each: -each[1]):
            terminalreporter.line(f"{cost:8.1f}  {folder}")
        terminalreporter.section(f"the {DEAREST} dearest tests, in core-seconds")
        for test in sorted(self._of, key=lambda each: -self._of[each])[:DEAREST]:
            if self._of[test] >= WORTH_A_LINE:
                terminalreporter.line(f"{self._of[test]:8.1f}  {test}")

    def _add_to(self, file: Path) -> None:
        """Add the costs to a file, whose other tests another command has run."""
        before = json.loads(file.read_text()) if file.exists() else {}
        costs = {test: round(cost, 2) for test, cost in self._of.items()}
        file.write_text(json.dumps(dict(sorted((before | costs).items())), indent=1))
