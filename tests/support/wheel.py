"""The project as its users have it: a wheel, installed where no clone is on the path."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import REPO


@dataclass(frozen=True, slots=True)
class Installed:
    """A virtual environment with the wheel.

    Attributes:
        python: Its interpreter.
        site: Where its packages lie.
        folder: An empty folder to run in.

    """

    python: Path
    site: Path
    folder: Path

    def environment(self, **further: str) -> dict[str, str]:
        """Return the variables of a shell in which it is activated."""
        ours = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ours and not name.startswith(("AIRFLOW", "STATECORE_"))
        }
        return kept | {"PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}", **further}

    def run(self, *command: str, **further: str) -> str:
        """Run a command of it in the folder, and return what it prints."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(**further),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def build(folder: Path) -> Path:
    """Build the wheel, and return its path."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPO)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(folder: Path) -> Installed:
    """Build the wheel and install it into a new virtual environment.

    All other packages are links to those of this interpreter, so nothing is fetched. An installation of statecore that
    is there, perhaps an editable one, stays out of sight, and so do its metadata and entry points.
    """
    wheel = build(folder / "dist")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "venv" / "lib" / version / "site-packages"
    for shared in (Path(path) for path in sys.path if path.endswith("site-packages")):
        for entry in shared.iterdir():
            ours = entry.name.startswith("statecore") or entry.suffix == ".pth"
            if not ours and not (site / entry.name).is_symlink():
                (site / entry.name).symlink_to(entry)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    command = [*pip, "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    empty = folder / "empty"
    empty.mkdir()
    return Installed(python, site, empty)
