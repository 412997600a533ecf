"""A supervisor in a process of its own: ``python -m tests.chaos.supervise LOGS DRIVER CLOCK DRIVERS_AHEAD_S``."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from statecore.catalog import Catalog, GenerationRecord, JobRecord, Liveness
from statecore.operations.submit import SparkSubmit
from statecore.supervisor import CATALOG_VARIABLE, Supervisor
from tests.chaos.clocks import with_clock

# Seconds, where people would give it more: a campaign has many who are silent.
LIVENESS = Liveness(running_ms=6_000, launching_ms=45_000, supervising_ms=6_000)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logs, driver, clock = map(Path, sys.argv[1:4])
    drivers_ahead_s = int(sys.argv[4])

    def launch(job: JobRecord, generation: GenerationRecord) -> list[str]:
        return with_clock(SparkSubmit(driver)(job, generation), clock, drivers_ahead_s)

    with Catalog(os.environ[CATALOG_VARIABLE], liveness=LIVENESS) as catalog:
        Supervisor(catalog, logs, launch=launch, poll_interval_s=0.2).run()


if __name__ == "__main__":
    main()
