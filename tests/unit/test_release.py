"""The release is that of the installed package, read once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from statecore.release import RELEASE


def test_a_program_goes_on_as_the_release_that_it_began_with(tmp_path: Path) -> None:
    upgraded = tmp_path / "statecore-9.9.9.dist-info"
    program = (
        "import os, sys, importlib, importlib.metadata, statecore.release as release\n"
        f"os.rename({str(tmp_path / 'new')!r}, {str(upgraded)!r}); importlib.invalidate_caches()\n"
        "print(importlib.metadata.version('statecore'), release.RELEASE)"
    )
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "METADATA").write_text("Metadata-Version: 2.1\nName: statecore\nVersion: 9.9.9\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.stdout.split(), done.stderr) == (["9.9.9", RELEASE], "")
