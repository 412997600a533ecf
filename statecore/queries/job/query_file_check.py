"""Loads a query file; a separate program, started without credentials.

It starts no Spark session, so it does not call ``build(spark, settings)``.
"""

from __future__ import annotations

from collections.abc import Mapping

from statecore.errors import QueryDefinitionError
from statecore.queries.job.query_file import load_query
from statecore.runtime.job_file_check import answer


def main() -> None:
    """Check one query file."""
    answer(_load)


def _load(path: str, settings: Mapping[str, str]) -> None:
    try:
        load_query(path)
    except QueryDefinitionError as error:
        # What the file raised: it may be a package that is missing here only.
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise


if __name__ == "__main__":
    main()
