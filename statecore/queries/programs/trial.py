"""spark-submit entry point: tries to restart a query file on a clone of a checkpoint, while its query may run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from statecore.queries.programs.ending import explained
from statecore.queries.proving.query_trial import try_query


def main() -> None:
    """Parse arguments, try the query, print the batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="checkpoint to try on; it is only read")
    parser.add_argument("--query", required=True, type=Path, help="query file")
    parser.add_argument("--settings", required=True, type=Path, help="JSON file with the settings that its build gets")
    arguments = parser.parse_args()
    with explained():
        batch = try_query(arguments.checkpoint, arguments.query, json.loads(arguments.settings.read_text()))
    print(f"the query restarts after batch {batch}, with the state that is there")


if __name__ == "__main__":
    main()
