"""A temporary folder is removed with its process, or after it, and never under it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from statecore.storage.workspaces import remove_abandoned, workspace

OWNER = """
import signal
from statecore.storage.workspaces import workspace

with workspace("orders-3") as folder:
    (folder / "spark").mkdir()
    (folder / "spark" / "metadata").write_text("{}")
    print(folder, flush=True)
    signal.pause()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_goes_with_its_block(temporary: Path) -> None:
    with workspace("orders-3") as folder:
        assert folder.parent == temporary
        assert folder.name.startswith("statecore-orders-3-")
        assert remove_abandoned() == []
        assert folder.is_dir()
    assert [*temporary.iterdir()] == []


def test_a_folder_stays_while_its_process_lives_or_is_stopped_and_goes_once_it_was_killed(temporary: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert remove_abandoned() == []
        os.kill(owner.pid, signal.SIGSTOP)
        assert remove_abandoned() == []
        assert (folder / "spark" / "metadata").exists()
    finally:
        owner.kill()
        owner.communicate()
    assert remove_abandoned() == [folder.name]
    assert [*temporary.iterdir()] == []


def test_folders_that_are_no_workspaces_stay(temporary: Path) -> None:
    (temporary / "statecore-notes").mkdir()
    (temporary / "statecore-notes" / "todo").write_text("important")
    (temporary / "others").mkdir()
    (temporary / "others" / ".lock").write_text("")
    (temporary / "statecore-file").write_text("")
    assert remove_abandoned() == []
    assert sorted(path.name for path in temporary.iterdir()) == ["others", "statecore-file", "statecore-notes"]
