"""Checks that a supervisor runs: without one, nothing starts a stopped job again."""

from __future__ import annotations

from statecore.catalog import Catalog
from statecore.errors import NoSupervisorError


def require_supervisor(catalog: Catalog, job: str) -> None:
    """Refuse to stop a job that no supervisor would start again.

    Raises:
        NoSupervisorError: No supervisor has sent a heartbeat for a while.

    """
    supervisor = catalog.supervisors.last()
    if catalog.supervisors.is_alive(supervisor):
        return
    last = ""
    if supervisor is not None:
        silent_s = (catalog.now_ms() - supervisor.heartbeat_ms) // 1000
        last = f"; the last one, pid {supervisor.pid} on {supervisor.host}, has been silent for {silent_s} s"
    raise NoSupervisorError(
        f"found no living supervisor{last}; expected one, because this change stops job {job!r} and nobody would start "
        "it again; the job was not stopped; start `statecore supervisor --logs DIRECTORY` with this catalog, then try "
        "again"
    )
