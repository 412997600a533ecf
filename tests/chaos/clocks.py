"""Clocks that differ from this machine's, for Python and Java alike."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock.c")
COMPILER = "cc"


def has_clocks() -> bool:
    """Return whether clocks can be made here."""
    return shutil.which(COMPILER) is not None


def make_clock(folder: Path) -> Path:
    """Compile the clock into a folder and return its library."""
    library = folder / "clock.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    return library


def with_clock(command: Sequence[str], clock: Path, ahead_s: int) -> list[str]:
    """Return a command whose processes have a clock so much ahead, whatever clock their parent has."""
    if not ahead_s:
        return ["env", "--unset=LD_PRELOAD", "--unset=CHAOS_CLOCK_AHEAD_S", *command]
    return ["env", f"LD_PRELOAD={clock}", f"CHAOS_CLOCK_AHEAD_S={ahead_s}", *command]
