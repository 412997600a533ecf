"""``python -m tests.invariants``: takes each invariant's keeper away and shows that a test fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.invariants.removals import REMOVALS, Removal
from tests.support.paths import REPO


def fails_without(removal: Removal, folder: Path, passed: set[str]) -> bool:
    """Run a removal's test in a copy of the tree without the line; True when it fails, as it must.

    Unless it is among ``passed``, the test first passes with the line in place: one that always fails proves nothing.
    """
    copy = folder / "copy"
    shutil.copytree(REPO, copy, ignore=shutil.ignore_patterns(".venv", ".git", ".run", ".*_cache", "__pycache__"))
    path = copy / removal.file
    text = path.read_text()
    assert text.count(removal.kept) == 1, f"{removal.file} has {text.count(removal.kept)} times {removal.kept!r}"
    if removal.test not in passed:
        if not passes(removal.test, copy):
            raise RuntimeError(f"{removal.test} fails with all lines in place; it must pass before it can prove any")
        passed.add(removal.test)
    path.write_text(text.replace(removal.kept, removal.removed))
    return not passes(removal.test, copy)


def passes(test: str, copy: Path) -> bool:
    """Run a test in a copy of the tree."""
    # The copy comes first, also for the workers of Spark.
    search = os.pathsep.join([str(copy), str(copy / "plugins")])
    environment = {**os.environ, "PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{test} could not be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def main() -> int:
    """Try every removal; the exit code is 1 when a test still passes."""
    console = Console()
    table = Table("invariant", "without", "in", "test", "")
    unproved, passed = 0, set[str]()
    for removal in REMOVALS:
        with console.status(f"{removal.invariant}: {removal.test}"), tempfile.TemporaryDirectory() as folder:
            proved = fails_without(removal, Path(folder), passed)
        unproved += not proved
        line = removal.kept.strip().splitlines()[0]
        table.add_row(str(removal.invariant), line, removal.file, removal.test, "fails" if proved else "[red]passes")
        console.print(f"{removal.invariant}: {'fails, as it must' if proved else 'PASSES'}: {removal.test}")
    console.print(table)
    return 1 if unproved else 0


if __name__ == "__main__":
    sys.exit(main())
