"""spark-submit entry point: rewrites a savepoint's state for another parallelism or max parallelism."""

from __future__ import annotations

import argparse
import sys

from rich.filesize import decimal

from statecore.errors import StatecoreError
from statecore.program_output import PROGRESS
from statecore.runtime import rewrite_savepoint
from statecore.runtime.driver.generation import job_session


def main() -> None:
    """Parse arguments, rewrite, print the new manifest's path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--savepoint", required=True, help="savepoint to read: its folder or its manifest")
    parser.add_argument("--name", required=True, help="name of the savepoint to write, in the same store")
    parser.add_argument("--parallelism", required=True, type=int, help="subtasks of the new savepoint")
    parser.add_argument("--max-parallelism", type=int, help="key groups of the new savepoint; unchanged by default")
    arguments = parser.parse_args()
    spark = job_session("statecore-rewrite")
    try:
        path = rewrite_savepoint(
            spark,
            arguments.savepoint,
            name=arguments.name,
            parallelism=arguments.parallelism,
            max_parallelism=arguments.max_parallelism,
            report=lambda done, total: print(
                f"{PROGRESS}{decimal(done)} written of about {decimal(total)}", flush=True
            ),
        )
        print(path)
    except StatecoreError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
