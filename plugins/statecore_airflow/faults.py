"""Named points at which a test may have a step fail, or kill its process.

Off unless ``STATECORE_STEP_FAULTS`` names a folder. A file ``<step>@<place>`` in it, holding ``fail`` or ``kill``, is
used up by the first step that passes there; so a test can arm one after the other while Airflow runs.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum
from pathlib import Path

from airflow.sdk.exceptions import AirflowFailException


class Place(StrEnum):
    """Where in a step."""

    BEGUN = "begun"
    """The lease is held, and nothing is done yet."""
    ENDED = "ended"
    """All is done, and Airflow does not know it yet."""


def fault_point(step: str, place: Place) -> None:
    """Fail for good, or kill this process with SIGKILL, when a test asked for it here.

    Raises:
        AirflowFailException: A test asked for it.

    """
    folder = os.environ.get("STATECORE_STEP_FAULTS")
    if not folder:
        return
    armed = Path(folder) / f"{step}@{place}"
    try:
        kind = armed.read_text().strip()
        armed.rename(armed.with_name(f"{armed.name}.hit"))
    except FileNotFoundError:
        return
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise AirflowFailException(f"found {armed}; expected no fault to be asked for; this failure is a test's")
