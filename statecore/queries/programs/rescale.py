"""spark-submit entry point: copies a query's checkpoint to another number of state partitions, with proof."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from statecore.queries.programs.ending import explained
from statecore.queries.rescale import rescale


def main() -> None:
    """Parse arguments, copy, print the proof."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="checkpoint to copy")
    parser.add_argument("--target", required=True, help="where the copy appears")
    parser.add_argument("--partitions", required=True, type=int, help="state partitions of the copy")
    parser.add_argument("--query", type=Path, help="query file, for a trial restart")
    parser.add_argument("--settings", type=Path, help="JSON file with the settings that its build gets")
    arguments = parser.parse_args()
    settings = {} if arguments.settings is None else json.loads(arguments.settings.read_text())
    with explained():
        result = rescale(
            arguments.checkpoint,
            arguments.target,
            arguments.partitions,
            arguments.query,
            settings=settings,
            report=lambda done, all_of_them: print(f"step {done} of {all_of_them}", flush=True),
        )
    tried = "the query loads its state" if result.proof.restart else "no restart was tried"
    print(f"proven: {result.proof.rows:,} rows are the same at batch {result.proof.batch}; {tried}")


if __name__ == "__main__":
    main()
