"""A copy takes the place of its checkpoint in one step: whoever looks finds the previous one or the new one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import CheckpointRefusedError
from statecore.queries.copying import replacing
from statecore.queries.copying.clone import clone
from statecore.queries.copying.replacing import alone_at, before, copy_of, discard, hold, replace, require_replaceable
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.origin import ORIGIN, origin_of, write_origin
from statecore.storage import LocalFileStore
from tests.unit.queries.handmade import PANDAS, QUERY_ID, Operator, make

Files = dict[str, bytes]


def files(root: Path) -> Files:
    """Return the files of a checkpoint but checksums and its origin, with its own root as ``ROOT``."""
    return {
        str(path.relative_to(root)): path.read_bytes().replace(str(root).encode(), b"ROOT")
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".crc" and path.name != ORIGIN
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A checkpoint of two and three state partitions, the second in a copy beside it."""
    place = tmp_path / "a folder" / "check%20point"
    lay(place, place, partitions=2)
    lay(place, copy_of(str(place)), partitions=3)
    # As a rescale leaves it.
    write_origin(LocalFileStore(copy_of(str(place))), origin_of(open_checkpoint(str(place)), 3))
    return place


def lay(place: Path, target: Path, partitions: int, batches: int = 3) -> None:
    source = place.with_name(f"source-{partitions}")
    made = make(source, Operator(), Operator(PANDAS, version=2, partitions=partitions), batches=batches)
    clone(open_checkpoint(str(made.root)), str(target))
    shutil.rmtree(source)


def test_a_copy_takes_the_place_of_its_checkpoint(place: Path) -> None:
    old, new = files(place), files(copy_of(str(place)))
    replace(str(place))
    assert files(place) == new and open_checkpoint(str(place)).partitions == 3
    previous = before(str(place))
    assert files(previous) == old and open_checkpoint(str(previous)).partitions == 2
    assert not copy_of(str(place)).exists()
    assert open_checkpoint(str(place)).query_id == open_checkpoint(str(previous)).query_id == QUERY_ID
    # The next one removes what the first one left.
    clone(open_checkpoint(str(place)), str(copy_of(str(place))))
    replace(str(place))
    assert files(place) == files(previous) == new


def test_whoever_looks_meanwhile_finds_the_previous_one_or_the_new_one(place: Path) -> None:
    seen: set[int] = set()
    failures: list[Exception] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            try:
                metadata = json.loads((place / "metadata").read_text())
                partitions = next((place / "state/1/_metadata/v2").iterdir()).read_text()
                seen.add(json.loads(partitions.split("\n", 1)[1])["stateStoreInfo"][0]["numPartitions"])
                assert metadata == {"id": QUERY_ID}
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for partitions in (2, 3) * 20:
            replace(str(place))
            lay(place, copy_of(str(place)), partitions)
    finally:
        ended.set()
        thread.join()
    assert failures == [] and seen == {2, 3}


class Killed(BaseException):
    """No handler of an error catches it."""


@pytest.mark.parametrize("step", range(4))
def test_a_kill_leaves_the_previous_one_or_the_new_one_and_the_next_attempt_succeeds(
    place: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = files(place), files(copy_of(str(place)))

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    def killed_after(*arguments: Any) -> None:
        real(*arguments)
        raise Killed

    real = replacing._exchange
    module, name, kill = (
        (replacing, "_exchange", killed),
        (replacing, "_exchange", killed_after),
        (replacing, "_keep", killed),
        (Path, "rename", killed),
    )[step]
    with monkeypatch.context() as patched:
        patched.setattr(module, name, kill)
        with pytest.raises(Killed):
            replace(str(place))
    left = files(place)
    assert left in (old, new) and (step > 1 or left == (old, new)[step])
    discard(str(place))
    assert not copy_of(str(place)).exists()
    if left == new:
        # Nothing is lost by the kill: the previous checkpoint is where it belongs.
        assert files(before(str(place))) == old
    clone(open_checkpoint(str(place)), str(copy_of(str(place))))
    replace(str(place))
    assert files(place) == left


def test_nothing_is_replaced_once_a_batch_was_begun(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = place / "offsets"

    def begin() -> None:
        shutil.copy(offsets / "2", offsets / "3")

    real = replacing._exchange

    def late(one: Path, other: Path) -> None:
        # The query begins a batch between the comparison and the exchange.
        if not (offsets / "3").exists() and not (other / "offsets/3").exists():
            begin()
        real(one, other)

    with monkeypatch.context() as patched:
        patched.setattr(replacing, "_exchange", late)
        with pytest.raises(CheckpointRefusedError, match=r"found a batch in .* that was begun .*; stop every program"):
            replace(str(place))
    assert (offsets / "3").exists() and open_checkpoint(str(place)).partitions == 2
    with pytest.raises(CheckpointRefusedError, match="found a batch in"):
        replace(str(place))
    discard(str(place))
    with pytest.raises(CheckpointRefusedError, match="found a batch in"):
        replace(str(place))
    assert open_checkpoint(str(place)).partitions == 2


OTHER = """
import sys
from statecore.queries.copying.replacing import alone_at, hold

does, url = sys.argv[1:]
change = alone_at(url)
hold(url) if does == "run" else change.__enter__()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("does", ["run", "change"])
def test_no_program_changes_a_checkpoint_beside_another_one(place: Path, does: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, does, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == b"held\n"
            refused = pytest.raises(CheckpointRefusedError, match=r"another program that runs the query of .*; end the")
            with refused, alone_at(str(place)):
                pass
            if does == "run":
                hold(str(place))
            else:
                with refused:
                    hold(str(place))
        finally:
            other.kill()
    # Its end gives the checkpoint free, however it ended; this process may change what it holds.
    hold(str(place))
    with alone_at(str(place)):
        pass


def test_a_place_where_folders_cannot_be_exchanged_is_refused(
    place: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_replaceable(str(place))
    assert sorted(path.name for path in place.parent.iterdir()) == [copy_of(str(place)).name, place.name]
    with pytest.raises(CheckpointRefusedError, match=r"in an object store, .*; copy it with `statecore checkpoint"):
        require_replaceable(f"{s3_url}/checkpoint")
    mounted = next(path for path in map(Path, ("/dev/shm", "/proc", "/sys")) if os.path.ismount(path))
    with pytest.raises(CheckpointRefusedError, match=rf"a file system mounted at {mounted}; .*one folder deeper"):
        require_replaceable(str(mounted))

    def cannot(*_: Any) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(replacing, "_exchange", cannot)
    with pytest.raises(CheckpointRefusedError, match=r"cannot be exchanged in one step \(Invalid argument\)"):
        require_replaceable(str(place))
