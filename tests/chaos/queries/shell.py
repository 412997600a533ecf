"""The shell, whose killed commands lose their lease much sooner: ``python -m tests.chaos.queries.shell COMMAND …``."""

from __future__ import annotations

from statecore.cli import lease, main, steps

_LEASE_MS = 15_000

if __name__ == "__main__":
    lease.LEASE_TTL_MS = _LEASE_MS
    steps.LEASE_TTL_MS = _LEASE_MS  # type: ignore[attr-defined]  # it is imported there by its name
    lease._RENEW_S = _LEASE_MS / 5_000
    main()
