"""How the programs on a job's Spark end when they fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from statecore.errors import CheckpointError, QueryDefinitionError, StatecoreError

_REFUSED, _FAILED = 2, 1


@contextmanager
def explained() -> Iterator[None]:
    """Exit with the error's message: with code 2 if a retry would fail the same way, else with code 1."""
    try:
        yield
    except StatecoreError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(_REFUSED if isinstance(error, CheckpointError | QueryDefinitionError) else _FAILED)
