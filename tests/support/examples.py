"""How many examples a property test tries: each its full number in the nightly run, else a quarter."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SHARE = 1.0 if os.environ.get("ALL_EXAMPLES") else 0.25
_FEWEST = 5


def examples(count: int = 100) -> settings:
    """Return the settings of a property test.

    Args:
        count: Number of examples in the nightly run.

    """
    return settings(
        max_examples=max(_FEWEST, round(count * _SHARE)),
        # How long an example takes says nothing while other tests run beside it.
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
