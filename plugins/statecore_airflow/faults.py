"""Named points at which a test can make a step fail, or kill its process.

Off unless ``STATECORE_STEP_FAULTS`` names a folder. A file ``<step>@<place>`` in it contains ``fail`` or ``kill``. The
first step that passes the point uses the file up, so a test can arm one point after the other while Airflow runs.
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
    """All is done, but Airflow does not know it yet."""


def fault_point(step: str, place: Place) -> None:
    """Fail for good, or kill this process with SIGKILL, if a test asked for it here.

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
    raise AirflowFailException(f"found {armed}; expected no armed fault; this failure is a test's")
