"""spark-submit entry point: runs one generation of a job's driver; ``STATECORE_CATALOG`` is the URL of the catalog."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable

from statecore.catalog import Catalog
from statecore.runtime.driver.generation import run_generation
from statecore.snapshot.settings import DriverSettings


def main(settings: DriverSettings | None = None) -> None:
    """Run until the job is asked to stop; ``settings`` as in ``run_generation``."""
    drive(str(__doc__), lambda catalog, job, generation: run_generation(catalog, job, generation, settings=settings))


def drive(description: str, run: Callable[[Catalog, str, int], None]) -> None:
    """Parse the arguments of a driver, open its catalog, and run it.

    Args:
        description: What the program does.
        run: Runs the generation with this number of a job, given the catalog and the job's name.

    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--job", required=True, help="name of the job")
    parser.add_argument("--generation", required=True, type=int, help="generation that was claimed for this driver")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # Users' code runs in this process, and prints or sends its environment easily.
    with Catalog(os.environ.pop("STATECORE_CATALOG")) as catalog:
        run(catalog, arguments.job, arguments.generation)


if __name__ == "__main__":
    main()
