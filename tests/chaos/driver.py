"""A driver that cleans up much sooner than a job's configuration may ask for: spark-submit starts this file."""

from __future__ import annotations

import argparse
import logging
import os
from datetime import timedelta

from statecore.catalog import Catalog
from statecore.runtime.driver.generation import run_generation
from statecore.snapshot.settings import UpkeepSettings

# The grace period is longer than the longest epoch, also of one whose storage fails.
SETTINGS = UpkeepSettings(retained_checkpoints=6, clean_up_grace=timedelta(seconds=40), base_floor_bytes=8192)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", required=True)
    parser.add_argument("--generation", required=True, type=int)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with Catalog(os.environ["STATECORE_CATALOG"]) as catalog:
        run_generation(catalog, arguments.job, arguments.generation, settings=SETTINGS)


if __name__ == "__main__":
    main()
