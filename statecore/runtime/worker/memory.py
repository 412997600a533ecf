"""Memory of a Python worker against its limit: a worker whose state exceeds it is killed without a message."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")
NEARLY_FULL = 0.8
"""A worker above this share of its limit is reported."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Used memory and its limit, in bytes."""

    used: int
    limit: int

    @property
    def share(self) -> float:
        """Used memory as a share of the limit."""
        return self.used / self.limit


def worker_memory() -> Memory:
    """Return the tightest limit on this process.

    ``spark.executor.pyspark.memory`` limits the address space of each Python worker; a container limits the sum of its
    processes; otherwise the machine is the limit.
    """
    limits = [_machine(), *filter(None, (_address_space(), _container()))]
    return max(limits, key=lambda memory: memory.share)


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


def _machine() -> Memory:
    memory = psutil.virtual_memory()
    return Memory(memory.total - memory.available, memory.total)
