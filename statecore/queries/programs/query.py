"""spark-submit entry point: runs one generation of a query of Spark's own; ``STATECORE_CATALOG`` names the catalog."""

from __future__ import annotations

from statecore.queries.job.driver.generation import run_query
from statecore.runtime.programs.stream import drive


def main() -> None:
    """Run until the query ends or is asked to stop."""
    drive(str(__doc__), run_query)


if __name__ == "__main__":
    main()
