"""The project as its users have it: a wheel, installed where no clone is on the path."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent


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

    Other packages are those of this interpreter: a line of a ``.pth`` file adds a folder, but no ``.pth`` file in it is
    read, so an editable installation of statecore there is not found.
    """
    wheel = build(folder / "dist")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "venv" / "lib" / version / "site-packages"
    (site / "shared.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    command = [*pip, "--no-deps", "--no-index", "--no-compile", "--ignore-installed", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    empty = folder / "empty"
    empty.mkdir()
    return Installed(python, site, empty)
