"""spark-submit entry point: runs one generation of a query of Spark's own, as ``STATECORE_CATALOG`` has it."""

from __future__ import annotations

import argparse
import logging
import os

from statecore.catalog import Catalog
from statecore.queries.driver.generation import run_query


def main() -> None:
    """Parse arguments and run until the query ends or is asked to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", required=True, help="name of the job")
    parser.add_argument("--generation", required=True, type=int, help="generation that was claimed for this driver")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # The query file runs in this process, and prints or sends its environment easily.
    with Catalog(os.environ.pop("STATECORE_CATALOG")) as catalog:
        run_query(catalog, arguments.job, arguments.generation)


if __name__ == "__main__":
    main()
