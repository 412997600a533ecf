"""spark-submit entry point: runs one generation of a job's driver; ``STATECORE_CATALOG`` is the URL of the catalog."""

from __future__ import annotations

import argparse
import logging
import os

from statecore.catalog import Catalog
from statecore.runtime.driver.generation import run_generation
from statecore.snapshot.settings import DriverSettings


def main(settings: DriverSettings | None = None) -> None:
    """Parse arguments and run until the job is asked to stop; ``settings`` as in ``run_generation``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", required=True, help="name of the job")
    parser.add_argument("--generation", required=True, type=int, help="generation that was claimed for this driver")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # Job code runs in this process, and prints or sends its environment easily.
    with Catalog(os.environ.pop("STATECORE_CATALOG")) as catalog:
        run_generation(catalog, arguments.job, arguments.generation, settings=settings)


if __name__ == "__main__":
    main()
