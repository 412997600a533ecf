"""Health check of the supervisor: it reports on every cluster with each of its passes."""

from __future__ import annotations

import os
import sys

from statecore.catalog import Catalog, SystemClock

_OLDEST_MS = 30_000


def main() -> None:
    """Exit with 1 when a cluster's newest report is too old."""
    with Catalog(os.environ["STATECORE_CATALOG"]) as catalog:
        now_ms = SystemClock().now_ms()
        late = [each.name for each in catalog.clusters() if now_ms - each.updated_ms > _OLDEST_MS]
    if late:
        sys.exit(f"the supervisor has not reported on {', '.join(late)} for {_OLDEST_MS // 1000} s")


if __name__ == "__main__":
    main()
