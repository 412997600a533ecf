"""Shortens the time in which a Python worker waits for the first rows of a task.

The JVM writes a task to a worker's TCP socket, then its rows. Nagle's algorithm holds the rows back until the worker
has acknowledged the task, and Linux delays an acknowledgement by 40 ms where it expects an answer to carry it. A task
of a small epoch takes less.
"""

from __future__ import annotations

import socket
import stat
from contextlib import suppress
from pathlib import Path

_OWN_FILES = Path("/proc/self/fd")


def acknowledge_now() -> None:
    """Acknowledge at once what this process has received over TCP; where that is no option, do nothing."""
    if not hasattr(socket, "TCP_QUICKACK") or not _OWN_FILES.is_dir():
        return
    # Spark hands the task's socket to nobody, so look at all of this process.
    for each in _OWN_FILES.iterdir():
        # The file of this listing is gone by now, and sockets of other kinds know no such option.
        with suppress(OSError):
            if stat.S_ISSOCK(each.stat().st_mode):
                with socket.fromfd(int(each.name), socket.AF_INET, socket.SOCK_STREAM) as copy:
                    copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
