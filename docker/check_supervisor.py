"""Health check of the supervisor: every pass of its loop must update every cluster's record."""

from __future__ import annotations

import os
import sys

from statecore.catalog import Catalog, SystemClock

_OLDEST_MS = 30_000


def main() -> None:
    """Exit with 1 if a cluster's record is too old."""
    with Catalog(os.environ["STATECORE_CATALOG"]) as catalog:
        now_ms = SystemClock().now_ms()
        late = [each.name for each in catalog.clusters() if now_ms - each.updated_ms > _OLDEST_MS]
    if late:
        sys.exit(
            f"found no report on {', '.join(late)} for {_OLDEST_MS // 1000} s; expected one every few seconds; see the "
            "supervisor's log"
        )


if __name__ == "__main__":
    main()
