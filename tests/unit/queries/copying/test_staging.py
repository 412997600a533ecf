"""A new checkpoint appears whole or not at all, whenever an attempt is killed."""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from statecore.errors import CheckpointRefusedError
from statecore.queries.copying.clone import clone
from statecore.queries.copying.staging import _S3, staged
from statecore.queries.copying.transfer import bring, create
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.files import INCOMPLETE, files_below
from statecore.storage import FileEntry, open_store
from tests.support.paths import REPO
from tests.unit.queries.handmade import Handmade, Operator, make

# Says when it is at work in its place, and stays there.
ATTEMPT = """
import sys, time
from pathlib import Path
from statecore.queries.copying.staging import _S3, staged
with staged(sys.argv[1], sys.argv[2]) as place:
    (Path(place.folder) / "half").write_text("half of a checkpoint")
    print(place.folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def made(tmp_path: Path) -> Handmade:
    return make(tmp_path / "checkpoint", Operator())


@contextmanager
def attempt(target: str, source: str) -> Iterator[subprocess.Popen[str]]:
    """Run an attempt in another process until it is at work."""
    process = subprocess.Popen(
        [sys.executable, "-c", ATTEMPT, target, source], cwd=REPO, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


class TestLocal:
    def test_it_appears_at_the_end(self, made: Handmade, tmp_path: Path) -> None:
        with staged(str(tmp_path / "target"), str(made.root)) as place:
            place.store.write("a/b", b"data")
            assert not (tmp_path / "target").exists()
        assert (tmp_path / "target/a/b").read_bytes() == b"data"
        assert names(tmp_path) == ["checkpoint", "target"]

    @pytest.mark.parametrize("error", [ValueError, FileNotFoundError, KeyboardInterrupt, CheckpointRefusedError])
    def test_a_failed_attempt_leaves_nothing(self, made: Handmade, tmp_path: Path, error: type[BaseException]) -> None:
        with pytest.raises(error, match="mine"), staged(str(tmp_path / "target"), str(made.root)) as place:
            place.store.write("a/b", b"data")
            raise error("mine")
        assert names(tmp_path) == ["checkpoint"]

    def test_a_killed_attempt_is_removed_by_the_next(self, made: Handmade, tmp_path: Path) -> None:
        target = tmp_path / "target"
        with attempt(str(target), str(made.root)) as process:
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert not target.exists()
            assert [name for name in names(tmp_path) if name.startswith(".target.attempt-")]
        clone(open_checkpoint(str(made.root)), str(target))
        assert names(tmp_path) == ["checkpoint", "target"]
        assert not (target / "half").exists()

    def test_an_attempt_that_is_stopped_is_not_removed(self, made: Handmade, tmp_path: Path) -> None:
        target = tmp_path / "target"
        with attempt(str(target), str(made.root)) as process:
            process.send_signal(signal.SIGSTOP)
            before = names(tmp_path)
            with pytest.raises(CheckpointRefusedError, match="at work"):
                clone(open_checkpoint(str(made.root)), str(target))
            assert names(tmp_path) == before

    def test_what_was_killed_before_it_had_a_lock_is_removed(self, made: Handmade, tmp_path: Path) -> None:
        (tmp_path / ".target.attempt-abc").mkdir()
        clone(open_checkpoint(str(made.root)), str(tmp_path / "target"))
        assert names(tmp_path) == ["checkpoint", "target"]

    def test_attempts_at_other_targets_stay(self, made: Handmade, tmp_path: Path) -> None:
        for name in (".target2.attempt-abc", ".targe.attempt-abc", ".t*.attempt-abc"):
            (tmp_path / name).mkdir()
        before = names(tmp_path)
        clone(open_checkpoint(str(made.root)), str(tmp_path / "target"))
        assert names(tmp_path) == sorted([*before, "target"])

    def test_what_appears_at_the_target_in_the_meantime_is_kept(self, made: Handmade, tmp_path: Path) -> None:
        target = tmp_path / "target"
        with pytest.raises(CheckpointRefusedError, match="already there"), staged(str(target), str(made.root)) as place:
            place.store.write("a", b"data")
            target.mkdir()
            (target / "mine").write_text("mine")
        assert names(target) == ["mine"]
        assert names(tmp_path) == ["checkpoint", "target"]

    def test_a_lock_that_was_removed_before_it_was_held_is_taken_again(
        self, made: Handmade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another attempt takes a folder whose lock is not held for a left-over."""
        lock = fcntl.flock
        removed: list[Path] = []

        def flock(file: BinaryIO, operation: int) -> None:
            if not removed:
                (folder,) = tmp_path.glob(".target.attempt-*")
                shutil.rmtree(folder)
                removed.append(folder)
            lock(file, operation)

        monkeypatch.setattr(fcntl, "flock", flock)
        with staged(str(tmp_path / "target"), str(made.root)) as place:
            assert removed and place.folder.parent != removed[0]
        assert names(tmp_path) == ["checkpoint", "target"]


class TestS3:
    def test_it_is_no_checkpoint_until_the_end(self, made: Handmade, s3_url: str) -> None:
        with staged(s3_url, str(made.root)) as place:
            place.take(str(made.root), files_below(str(made.root)))
            found = {entry.path for entry in files_below(s3_url)}
            assert INCOMPLETE in found and "state/0/0/2.delta" in found
            assert not {path for path in found if path.startswith(("commits/", "offsets/", "metadata"))}
            with pytest.raises(CheckpointRefusedError, match="not whole"):
                open_checkpoint(s3_url)
        assert open_checkpoint(s3_url).batch == 1
        assert INCOMPLETE not in {entry.path for entry in files_below(s3_url)}

    def test_the_commits_come_last(self, made: Handmade, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        from statecore.queries.copying import staging

        order: list[str] = []

        def watched(source: str, target: str, files: list[FileEntry], *report: Any) -> object:
            if target == s3_url:
                order.extend(entry.path.split("/")[0] for entry in files)
            return bring(source, target, files, *report)

        def created(folder: Path, target: str, files: list[FileEntry]) -> None:
            order.extend(entry.path.split("/")[0] for entry in files)
            create(folder, target, files)

        monkeypatch.setattr(staging, "bring", watched)
        monkeypatch.setattr(staging, "create", created)
        clone(open_checkpoint(str(made.root)), s3_url)
        assert list(dict.fromkeys(order))[-4:] == ["metadata", "offsets", "statecore-origin.json", "commits"]

    def test_a_failed_attempt_leaves_nothing(self, made: Handmade, s3_url: str) -> None:
        with pytest.raises(ValueError, match="mine"), staged(s3_url, str(made.root)) as place:
            place.take(str(made.root), files_below(str(made.root)))
            raise ValueError("mine")
        assert files_below(s3_url) == []

    def test_a_killed_attempt_is_removed_by_the_next(self, made: Handmade, s3_url: str) -> None:
        with attempt(s3_url, str(made.root)) as process:
            process.send_signal(signal.SIGKILL)
            process.wait()
        store = open_store(s3_url)
        store.write("state/7/0/1.delta", b"of the killed one")
        assert store.size(INCOMPLETE)
        clone(open_checkpoint(str(made.root)), s3_url)
        assert open_checkpoint(s3_url).batch == 1
        assert store.size("state/7/0/1.delta") is None

    def test_of_two_attempts_the_first_stops(self, made: Handmade, s3_url: str) -> None:
        source = str(made.root)
        with pytest.raises(CheckpointRefusedError, match="found another attempt"), staged(s3_url, source) as first:
            first.take(source, files_below(source))
            clone(open_checkpoint(source), s3_url)
        # The other one's checkpoint is as it was.
        assert open_checkpoint(s3_url).batch == 1
        assert open_store(s3_url).size("state/0/1/2.delta")

    @pytest.mark.parametrize("ended", [False, True], ids=["while it works", "when it has ended"])
    def test_of_two_attempts_the_first_overwrites_nothing_of_the_second(
        self, made: Handmade, s3_url: str, ended: bool
    ) -> None:
        source, path = str(made.root), "state/0/0/2.delta"
        right = open_store(source).read(path)
        with pytest.raises(CheckpointRefusedError, match="found another attempt"), staged(s3_url, source) as first:
            first.store.write(path, b"of an older batch")
            with staged(s3_url, source) as second:
                second.take(source, files_below(source))
                if not ended:
                    with pytest.raises(CheckpointRefusedError, match="found another attempt"):
                        first.publish()  # type: ignore[attr-defined]
        assert open_checkpoint(s3_url).batch == 1
        assert open_store(s3_url).read(path) == right

    def test_an_attempt_does_not_end_that_of_another(
        self, made: Handmade, s3_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The second begins while the first writes its logs, which make it a checkpoint."""
        source = str(made.root)
        others: list[_S3] = []
        write = _S3._create

        def begin_another(first: _S3, files: list[FileEntry]) -> None:
            write(first, files)
            if files and files[0].path.startswith("commits/") and not others:
                others.append(_S3(s3_url, first.folder))
                others[0].claim()

        monkeypatch.setattr(_S3, "_create", begin_another)
        with pytest.raises(CheckpointRefusedError, match="found another attempt"):
            clone(open_checkpoint(source), s3_url)
        assert others and open_store(s3_url).size(INCOMPLETE)
