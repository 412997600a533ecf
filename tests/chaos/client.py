"""A client of the catalog that locks a job, says so, and waits for input: ``python -m tests.chaos.client JOB``."""

from __future__ import annotations

import os
import sys

from statecore.catalog import Catalog
from statecore.supervisor import CATALOG_VARIABLE


def main() -> None:
    with Catalog(os.environ[CATALOG_VARIABLE]) as catalog, catalog._transactions.write_job(sys.argv[1]):
        print("locked", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
