"""Health check of the supervisor: every pass of its loop sends a heartbeat to the catalog."""

from __future__ import annotations

import os
import sys

from statecore.catalog import Catalog


def main() -> None:
    """Exit with 1 if the newest heartbeat is too old."""
    with Catalog(os.environ["STATECORE_CATALOG"]) as catalog:
        if not catalog.supervisors.is_alive(catalog.supervisors.last()):
            sys.exit(
                "found no heartbeat of a supervisor in the last half minute; expected one with each pass; see the "
                "supervisor's log"
            )


if __name__ == "__main__":
    main()
