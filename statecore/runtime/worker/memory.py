"""Memory of a Spark worker against its limit: a worker whose state exceeds it is killed without a message."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")
NEARLY_FULL = 0.8
"""A worker, or a host, above this share of its limit is reported."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in bytes.

    Attributes:
        used: What the worker itself uses of ``limit``.
        limit: Its limit.
        host_share: Share of the host's memory that all programs there use; None where a container limits the worker.

    """

    used: int
    limit: int
    host_share: float | None = None

    @property
    def share(self) -> float:
        """Used memory as a share of the limit."""
        return self.used / self.limit


def worker_memory() -> Memory:
    """Return the tightest limit of this worker.

    ``spark.executor.pyspark.memory`` limits the address space of each Python worker; a container limits the sum of its
    processes. A worker with neither may take what the host has, and competes for it with every other program there.
    """
    container, own, host = _container(), _address_space(), psutil.virtual_memory()
    if container is not None and container.limit < host.total:
        return max((container, own or container), key=lambda memory: memory.share)
    # What limits each Python worker does not limit all of them together, nor their JVM.
    all_of_them = Memory(sum(map(_resident, _executor())), host.total)
    tightest = max((all_of_them, own or all_of_them), key=lambda memory: memory.share)
    return replace(tightest, host_share=1 - host.available / host.total)


def _address_space() -> Memory | None:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else Memory(psutil.Process().memory_info().vms, limit)


def _container() -> Memory | None:
    """Return the limit of the control group (version 2); None without one, without a limit, or in an unknown format."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        statistics = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        # The kernel frees unused file pages before it kills a process.
        return Memory(used - int(statistics["inactive_file"]), limit)
    except (OSError, ValueError, KeyError):
        # "max" is not a number. An epoch must not fail because memory cannot be measured.
        return None


def _executor() -> Iterator[int]:
    """Yield the processes of this executor: its JVM, PySpark's daemon, and its Python workers.

    The kernel lists the daemon's children; to look through all processes of the host would take too long.
    """
    daemon = os.getppid()
    children = Path(f"/proc/{daemon}/task/{daemon}/children")
    try:
        yield from map(int, children.read_text().split())
        yield daemon
        yield int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        yield os.getpid()


def _resident(process: int) -> int:
    """Return the resident memory of a process; pages that workers share count for each of them.

    Each subtask asks for all processes of its executor after each epoch; psutil would also ask for their age.
    """
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        # A worker that has just ended, or a system without /proc.
        return psutil.Process().memory_info().rss if process == os.getpid() else 0
    return pages * resource.getpagesize()
