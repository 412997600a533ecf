"""A copy takes the place of its checkpoint; a kill at any step leaves the old one, the new one, or a mark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import CheckpointRefusedError, StatecoreError
from statecore.queries.copying import replacing
from statecore.queries.copying.clone import clone
from statecore.queries.copying.replacing import before, copy_of, discard, replace, resume
from statecore.queries.copying.transfer import bring
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.files import files_below
from statecore.queries.reading.origin import ORIGIN
from statecore.queries.reading.replaced import mark_of
from statecore.storage import FileStore, open_store
from tests.unit.queries.handmade import PANDAS, QUERY_ID, Operator, make

Files = dict[str, bytes]


class Killed(BaseException):
    """No handler of an error catches it."""


def files(url: str, root: str | None = None) -> Files:
    """Return the files of a checkpoint but checksums, with the root that they name as ``ROOT``."""
    # Spark's scheme is another.
    named = (root or url).removeprefix("s3://").encode()
    paths = [entry.path for entry in files_below(url) if not entry.path.endswith(".crc") and entry.path != ORIGIN]
    return {path: open_store(url).read(path).replace(named, b"ROOT") for path in paths}


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kill before the write, the copy or the removal of a file number ``step``."""
    steps = count()

    def one() -> None:
        if next(steps) == step:
            raise Killed

    def bring_each(source: str, target: str, entries: Any) -> None:
        for entry in entries:
            one()
            bring(source, target, [entry])

    class Mortal:
        def __init__(self, store: FileStore) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def write(self, path: str, data: bytes) -> None:
            one()
            self._store.write(path, data)

        def delete_all(self, paths: Any) -> None:
            for path in list(paths):
                one()
                self._store.delete_all([path])

    with monkeypatch.context() as patched:
        patched.setattr(replacing, "bring", bring_each)
        patched.setattr(replacing, "open_store", lambda url: Mortal(open_store(url)))
        yield


def lay(folder: str, tmp_path: Path) -> tuple[Files, Files]:
    """Lay a checkpoint and its copy, with other state; return the files of both."""
    places = {}
    for name, partitions in (("old", 2), ("new", 3)):
        made = make(tmp_path / name, Operator(), Operator(PANDAS, version=2, partitions=partitions), batches=3)
        places[name] = clone(open_checkpoint(str(made.root)), folder if name == "old" else copy_of(folder)).target
        shutil.rmtree(tmp_path / name)
    return files(places["old"]), files(places["new"])


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "a folder" / "check%20point")
    return f"{request.getfixturevalue('s3_url')}/checkpoint"


def test_a_copy_takes_the_place_of_its_checkpoint(place: str, tmp_path: Path) -> None:
    old, new = lay(place, tmp_path)
    replace(place)
    assert files(place) == new and open_checkpoint(place).partitions == 3
    assert files(before(place)) == old and open_checkpoint(before(place)).partitions == 2
    assert files_below(copy_of(place)) == [] and not resume(place)
    assert open_checkpoint(place).query_id == open_checkpoint(before(place)).query_id == QUERY_ID
    # The next one removes what the first one left.
    clone(open_checkpoint(place), copy_of(place))
    replace(place)
    assert files(place) == files(before(place)) == new


def test_a_kill_at_any_step_leaves_the_old_one_the_new_one_or_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "template"
    old, new = lay(str(template / "checkpoint"), tmp_path)
    seen = set()
    for step in count():
        folder = tmp_path / "at"
        shutil.copytree(template, folder)
        url = str(folder / "checkpoint")
        # Metadata of the template names its folder.
        root = str(template / "checkpoint")
        ended = True
        try:
            with killed_at(step, monkeypatch):
                replace(url)
        except Killed:
            ended = False
        marked = mark_of(open_store(url)) is not None
        if marked:
            with pytest.raises(CheckpointRefusedError, match=r"not complete; .*run it again"):
                open_checkpoint(url)
            seen.add("marked")
        elif files(url, root) == old:
            assert not ended
            seen.add("old")
            replace(url)
        else:
            assert files(url) == new
            seen.add("new")
        # Another kill on the way changes nothing.
        for further in (0, 3, 9):
            try:
                with killed_at(further, monkeypatch):
                    resume(url)
            except Killed:
                pass
        resume(url)
        assert files(url) == new and files(before(url)) == old
        shutil.rmtree(folder)
        if ended:
            break
    assert seen == {"old", "marked", "new"} and step > 60


def test_nothing_is_replaced_once_a_batch_was_begun(place: str, tmp_path: Path) -> None:
    old, _ = lay(place, tmp_path)
    open_store(place).write("offsets/3", open_store(place).read("offsets/2"))
    with pytest.raises(CheckpointRefusedError, match=r"found batches \(2, 3\) committed and.*; stop every"):
        replace(place)
    assert files(place).items() >= old.items()
    discard(place)
    assert files_below(copy_of(place)) == []
    with pytest.raises(CheckpointRefusedError, match="found batches"):
        replace(place)


def test_of_two_programs_the_earlier_one_stops(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = lay(place, tmp_path)
    calls = count()

    def overtaken(*arguments: Any) -> Any:
        if next(calls) == 0:
            resume(place)
        return bring(*arguments)

    monkeypatch.setattr(replacing, "bring", overtaken)
    with pytest.raises(StatecoreError, match=r"found another program that replaces|found no file .*statecore-next"):
        replace(place)
    assert files(place) == new and files(before(place)) == old
