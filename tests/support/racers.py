"""Processes that race: a lock inside of one process would not be enough.

They are forked from one that has loaded what racers import. A new interpreter for each would take longer than the race.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["pytest", "statecore.catalog", "statecore.snapshot", "statecore.storage.s3"])


def racer(run: Callable[..., None], *args: Any) -> BaseProcess:
    """Start a process that calls a function, in the environment that this one has now."""
    process = CONTEXT.Process(target=_run, args=(dict(os.environ), run, args), daemon=True)
    process.start()
    return process


def _run(environment: dict[str, str], run: Callable[..., None], args: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    run(*args)
