"""Creates the catalog's tables and registers the Spark cluster of the compose file; idempotent."""

from __future__ import annotations

import argparse
import os

from statecore.catalog import Catalog
from statecore.errors import UnknownClusterError


def main() -> None:
    """Parse arguments and write to the catalog at ``STATECORE_CATALOG``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", required=True, help="name to register the cluster under")
    parser.add_argument("--master", required=True, help="host name of the Spark master")
    parser.add_argument("--worker-host", required=True, help="host name of the container that runs the workers")
    parser.add_argument("--memory-per-worker", required=True, help="memory each worker offers, for example 1g")
    arguments = parser.parse_args()
    settings = {
        "master_url": f"spark://{arguments.master}:7077",
        "master_web_url": f"http://{arguments.master}:8080",
        "run_dir": "/var/lib/statecore/workers",
        "log_dir": "/data/logs",
        "memory_per_worker": arguments.memory_per_worker,
        "host": arguments.worker_host,
    }
    with Catalog(os.environ["STATECORE_CATALOG"]) as catalog:
        catalog.create_schema()
        catalog.grant_roles()
        try:
            # Keep the size that a rescale has set.
            workers = catalog.clusters.get(arguments.cluster).desired_workers
        except UnknownClusterError:
            workers = 1
        catalog.clusters.register(arguments.cluster, "standalone", settings, workers)


if __name__ == "__main__":
    main()
