"""Copies a savepoint or checkpoint to a separate folder: spark-submit copy_savepoint.py SOURCE TARGET."""

from __future__ import annotations

import argparse
import sys

from statecore.errors import StatecoreError
from statecore.runtime import copy_savepoint
from statecore.runtime.driver.generation import job_session


def main() -> None:
    """Parse the arguments, copy, print the location of the copy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="path or URL of the savepoint's folder, or of a manifest")
    parser.add_argument("target", help="path or URL of the folder to write")
    parser.add_argument("--reason", help="reason recorded in the copy; by default the source's")
    arguments = parser.parse_args()
    spark = job_session(f"copy {arguments.source}")
    try:
        print(copy_savepoint(spark, arguments.source, arguments.target, reason=arguments.reason))
    except StatecoreError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
