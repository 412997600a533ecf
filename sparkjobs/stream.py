"""spark-submit entry point: runs one generation of a job's driver."""

from __future__ import annotations

import argparse
import logging

from statecore.catalog import Catalog
from statecore.runtime.driver import run_generation


def main() -> None:
    """Parse arguments and run until the job is asked to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalog", required=True, help="URL of the catalog")
    parser.add_argument("--job", required=True, help="name of the job")
    parser.add_argument("--generation", required=True, type=int, help="generation that was claimed for this driver")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with Catalog(arguments.catalog) as catalog:
        run_generation(catalog, arguments.job, arguments.generation)


if __name__ == "__main__":
    main()
