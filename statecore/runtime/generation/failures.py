"""Reports the failure of a driver to the catalog."""

from __future__ import annotations

import socket
import sys
import time

from pyspark import SparkContext

from statecore.blame import blame
from statecore.catalog import Generations
from statecore.redaction import redacted
from statecore.user_files import JOB_MODULE, QUERY_MODULE

_HEAD, _TAIL = 1_000, 4_000
"""Characters of an error that the catalog keeps."""
_JVM_ENDED = (
    "found the driver's JVM ended; expected it to run until the job is stopped; see the end of its log, and whether "
    "the machine ran out of memory (`dmesg`)"
)
_SUPERVISOR_S = 3.0


def record_failure(generations: Generations, job: str, generation: int, error: BaseException) -> None:
    """Record that a generation failed, and why; the first record stays."""
    if jvm_ended():
        # The supervisor started the JVM and knows the signal that ended it, so it may record the failure first.
        time.sleep(_SUPERVISOR_S)
        generations.end(job, generation, state="failed", error=_JVM_ENDED)
    else:
        generations.end(job, generation, state="failed", error=told(error))


def told(error: BaseException) -> str:
    """Return an error for the catalog: its line in the user's file, its kind, its beginning and its end."""
    own = (JOB_MODULE, QUERY_MODULE)
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(own)]
    # Before it is cut: half a secret would not look like one.
    text = redacted(blame(error, {str(module.__file__) for module in modules}))
    left_out = len(text) - _HEAD - _TAIL
    if left_out <= 0:
        return text
    return f"{text[:_HEAD]}\n… {left_out:,} characters, in the driver's log …\n{text[-_TAIL:]}"


def jvm_ended() -> bool:
    """Return whether this driver had a JVM that no longer responds; every call into it fails with a py4j error."""
    gateway = SparkContext._gateway
    if gateway is None:
        return False
    parameters = gateway.gateway_parameters
    try:
        socket.create_connection((parameters.address, parameters.port), timeout=1).close()
    except OSError:
        return True
    return False
