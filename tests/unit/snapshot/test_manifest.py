"""The manifest on disk: readable for good, and refused by name when it is not what it should be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from statecore.errors import ManifestError, UnsafePathError
from statecore.model import DistributionMode, StateVisibility, UpdateType
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import (
    Artifact,
    FileKind,
    FileRef,
    ProgressFile,
    SavepointInfo,
    SourcePositions,
    StagedOutput,
    SubtaskState,
    TtlRef,
    decode_manifest,
    decode_subtask,
    encode_manifest,
    subtask_parts,
)
from tests.support.handmade import file_ref, manifest, written

# The machine may be busy; slowness proves nothing here.
DATA = Path(__file__).parent / "data"
GOLDEN = DATA / "manifest.json"


def test_the_manifest_in_the_repository_stays_readable() -> None:
    read = decode_manifest(GOLDEN.read_bytes(), "golden")

    assert (read.version, read.checksum, read.root, read.parent) == (
        1, "", "../..", "manifests/000001-000000000041.json",
    )  # fmt: skip
    assert (read.job, read.lineage, read.epoch, read.generation) == ("flight_delays", 2, 42, 3)
    assert (read.parallelism, read.max_parallelism, read.rows, read.rows_total) == (2, 128, 10, 4200)
    assert (read.batch_timestamp_ms, read.committed_ms) == (1_700_000_000_000, 1_700_000_000_500)
    assert (read.watermark_ms, read.watermark_before_ms) == (1_699_999_999_000, 1_699_999_998_000)
    assert (read.next_event_timer_ms, read.next_processing_timer_ms) == (1_700_000_060_000, 1_700_000_005_000)
    assert read.artifact == Artifact(
        name="flight_delays.py", file=FileRef(path=f"artifacts/{'9' * 64}/flight_delays.py", size=77, sha256="9" * 64)
    )
    assert read.sources == (
        SourcePositions(name="flights", positions=('{"logOffset":42}',), max_event_time_ms=1_699_999_999_001),
    )
    assert [(o.sink, o.rows) for o in read.outputs] == [("alerts", 3)]
    assert "offsets/42" in [p.name for p in read.progress]
    assert read.savepoint == SavepointInfo(name="before-outage", reason="storage is down", created_ms=1_700_000_001_000)


def test_the_state_in_the_golden_manifest_stays_readable() -> None:
    (operator,) = decode_manifest(GOLDEN.read_bytes(), "golden").operators

    assert (operator.uid, operator.key_fields[0].name, operator.key_fields[0].type) == ("delays", "tailnum", "string")
    assert [(s.name, s.scope, str(s.kind), s.stamped, s.windowed, s.mode) for s in operator.states] == [
        ("total", "keyed", "value", False, False, None),
        ("routes", "keyed", "map", True, True, None),
        ("__event_timers", "keyed", "timers", False, True, None),
        ("rejects", "operator", "list", False, False, DistributionMode.SPLIT),
        ("offsets", "operator", "list", False, False, DistributionMode.UNION),
        ("rules", "operator", "map", False, False, DistributionMode.BROADCAST),
    ]
    assert operator.states[1].ttl == TtlRef(
        ttl_ms=60_000,
        update_type=UpdateType.ON_READ_AND_WRITE,
        visibility=StateVisibility.NEVER_RETURN_EXPIRED,
        cleanup_full_snapshot=True,
        cleanup_incremental=(10, False),
    )
    first, second = operator.subtasks
    assert [(k.kind, k.token, k.key_groups, k.rows) for k in first.keyed[:2]] == [
        (FileKind.BASE, "aa", (0, 63), 100),
        (FileKind.CHANGELOG, "bb", (0, 63), 5),
    ]
    assert first.keyed[0].file == FileRef(
        path="state/delays/000001-000000000040/00000-aa-total.parquet", size=1234, sha256="a" * 64
    )
    assert [item.partitions.mode for item in first.operator] == [
        DistributionMode.SPLIT,
        DistributionMode.UNION,
        DistributionMode.BROADCAST,
    ]
    assert first.operator[0].partitions.offsets == (0, 1, 4)
    assert (first.operator_token, second) == ("bb", SubtaskState())


def test_what_is_written_today_is_the_golden_file_byte_for_byte() -> None:
    assert encode_manifest(decode_manifest(GOLDEN.read_bytes(), "golden")) == GOLDEN.read_bytes()


def test_a_manifest_is_read_back_equal(tmp_path: Path) -> None:
    made = written(CheckpointStore.at(str(tmp_path)), 3)
    assert decode_manifest(encode_manifest(made), "x") == made


def test_each_subtask_is_found_in_its_part_of_the_file() -> None:
    manifest = decode_manifest(GOLDEN.read_bytes(), "golden")
    twice = msgspec.structs.replace(manifest.operators[0], uid="copy", subtasks=manifest.operators[0].subtasks[::-1])
    empty = msgspec.structs.replace(manifest.operators[0], uid="empty", subtasks=(SubtaskState(),) * 3)
    manifest = msgspec.structs.replace(manifest, operators=(*manifest.operators, twice, empty))
    data = encode_manifest(manifest)

    parts = subtask_parts(data)

    assert list(parts) == [operator.uid for operator in manifest.operators]
    for operator in manifest.operators:
        found = [data[part.start : part.start + part.size] for part in parts[operator.uid]]
        assert tuple(map(decode_subtask, found)) == operator.subtasks
        assert [hashlib.sha256(part).hexdigest() for part in found] == [part.sha256 for part in parts[operator.uid]]
    places = [(part.start, part.start + part.size) for found in parts.values() for part in found]
    assert all(end <= start for (_, end), (start, _) in pairwise(places))


def test_a_part_that_names_a_file_outside_of_the_root_is_refused() -> None:
    subtask = decode_manifest(GOLDEN.read_bytes(), "golden").operators[0].subtasks[0]
    with pytest.raises(UnsafePathError, match="expected a relative path"):
        decode_subtask(msgspec.json.encode(subtask).replace(b'"state/', b'"../'))


def test_files_names_each_file_once_and_no_staged_output() -> None:
    read = decode_manifest(GOLDEN.read_bytes(), "golden")
    assert sorted(ref.sha256[0] for ref in read.files()) == ["1", "2", "9", "a", "b", "c", "e", "f"]


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return a changed manifest with a checksum that fits, as a program that errs would write it."""
    raw = json.loads(unsigned())
    change(raw)
    return signed(json.dumps(raw).encode())


def unsigned() -> bytes:
    return GOLDEN.read_bytes().replace(json.loads(GOLDEN.read_bytes())["checksum"].encode(), b"0" * 64)


def signed(data: bytes) -> bytes:
    return data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode(), 1)


def test_an_edited_manifest_is_refused_until_its_checksum_is_right() -> None:
    edited = GOLDEN.read_bytes().replace(b'"rows": 10,', b'"rows": 11,')
    with pytest.raises(ManifestError, match=r"found x with the SHA-256 .*; expected .*; it was edited"):
        decode_manifest(edited, "x")
    assert decode_manifest(changed(lambda raw: raw.update(rows=11)), "x").rows == 11


def _operator(raw: dict[str, Any]) -> dict[str, Any]:
    return raw["operators"][0]


def _keyed(raw: dict[str, Any]) -> dict[str, Any]:
    return _operator(raw)["subtasks"][0]["keyed"][0]


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "newer version": (
        lambda m: m.update(version=2),
        r"manifest version 2 in NAME; expected version 1; read it with",
    ),
    "version that is no number": (
        lambda m: m.update(version="1"),
        r"found NAME, which is not a manifest .*\$\.version",
    ),
    "no version": (lambda m: m.pop("version"), r"manifest version 0 in NAME"),
    "other format": (lambda m: m.update(format="iceberg"), r"the format 'iceberg' in NAME; expected 'statecore.man"),
    "no format": (lambda m: m.pop("format"), r"the format '' in NAME"),
    "unknown field": (lambda m: m.update(colour="red"), r"NAME.*unknown field `colour`"),
    "unknown field deep inside": (lambda m: _keyed(m).update(colour="red"), r"NAME.*`colour`.*keyed\[0\]"),
    "missing field": (lambda m: m.pop("epoch"), r"NAME.*missing required field `epoch`"),
    "wrong type": (lambda m: m.update(epoch="42"), r"NAME.*\$\.epoch"),
    "root elsewhere": (lambda m: m.update(root="/"), r"NAME.*\$\.root"),
    "unknown kind of file": (lambda m: _keyed(m).update(kind="pickle"), r"NAME.*'pickle'.*kind"),
    "unknown mode": (
        lambda m: _operator(m)["subtasks"][0]["operator"][0]["partitions"].update(mode="random"),
        r"NAME.*'random'.*mode",
    ),
    "a subtask lost": (lambda m: _operator(m)["subtasks"].pop(), r"NAME.*1 subtasks of operator 'delays'.*lism 2"),
    "parallelism changed": (lambda m: m.update(parallelism=3), r"NAME.*2 subtasks of operator 'delays'.*lism 3"),
    "parallelism beyond the maximum": (lambda m: m.update(max_parallelism=1), r"NAME.*parallelism 2 of at most 1"),
    "key groups outside": (lambda m: _keyed(m).update(key_groups=[0, 128]), r"NAME.*key groups 0 to 128 of 128"),
    "key groups reversed": (lambda m: _keyed(m).update(key_groups=[5, 4]), r"NAME.*key groups 5 to 4"),
    "unknown kind of state": (lambda m: _operator(m)["states"][0].update(kind="pickle"), r"NAME.*'pickle'.*kind"),
    "a map state that is no map": (
        lambda m: _operator(m)["states"][1].update(type="bigint"),
        r"NAME.*map state 'routes' of the type 'bigint'",
    ),
    "operator state without a mode": (
        lambda m: _operator(m)["states"][3].update(mode=None),
        r"NAME.*operator state 'rejects' as list with the mode None",
    ),
    "a broadcast list": (
        lambda m: _operator(m)["states"][3].update(mode="broadcast"),
        r"NAME.*operator state 'rejects' as list with the mode broadcast",
    ),
    "elements of another mode than their state": (
        lambda m: _operator(m)["states"][3].update(mode="union"),
        r"NAME.*split elements of the union state 'rejects'",
    ),
    "a state that is not declared": (lambda m: _keyed(m).update(state="gone"), r"NAME.*keyed state 'gone'.*'delays'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_manifest_that_does_not_fit_is_refused_with_its_name_and_the_reason(case: str) -> None:
    change, message = REFUSED[case]
    with pytest.raises(ManifestError, match=message.replace("NAME", "/store/manifests/x.json")) as raised:
        decode_manifest(changed(change), "/store/manifests/x.json")
    assert "expected" in str(raised.value)
    assert str(raised.value).count(";") >= 2


ESCAPES: dict[str, Callable[[dict[str, Any]], object]] = {
    "keyed file": lambda m: _keyed(m)["file"].update(path="../../etc/passwd"),
    "operator file": lambda m: _operator(m)["subtasks"][0]["operator"][0]["file"].update(path="/etc/passwd"),
    "staged output": lambda m: m["outputs"][0]["file"].update(path="a/../../b"),
    "progress file": lambda m: m["progress"][0]["file"].update(path="a\\..\\b"),
    "name of a progress file": lambda m: m["progress"][0].update(name="../../outside"),
}


@pytest.mark.parametrize("case", ESCAPES)
def test_a_manifest_that_names_a_file_outside_of_its_root_is_refused(case: str) -> None:
    with pytest.raises(UnsafePathError, match="expected a relative path"):
        decode_manifest(changed(ESCAPES[case]), "x")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        GOLDEN.read_bytes()[:-40],
        b"\x80\x04\x95",
        b"null",
        b"[]",
        b'{"x":' + b"[" * 100_000,
        signed(unsigned().replace(b"storage", b"st\xff")),
    ],
    ids=["empty", "brace", "truncated", "pickle", "null", "array", "nesting without end", "byte that is no text"],
)
def test_damaged_json_is_refused_with_the_name_of_the_manifest(data: bytes) -> None:
    with pytest.raises(ManifestError, match=r"found the-manifest, which"):
        decode_manifest(data, "the-manifest")


@given(st.integers(0, len(GOLDEN.read_bytes()) - 1), st.integers(0, 255))
def test_every_flipped_byte_is_refused(position: int, byte: int) -> None:
    data = bytearray(GOLDEN.read_bytes())
    assume(data[position] != byte)
    data[position] = byte
    with pytest.raises(ManifestError, match=r"found .*the-manifest.*; expected") as raised:
        decode_manifest(bytes(data), "the-manifest")
    assert str(raised.value).count(";") >= 2


def test_records_are_immutable_and_take_no_unknown_field() -> None:
    made = manifest()
    with pytest.raises(AttributeError):
        made.epoch = 8  # type: ignore[misc]
    with pytest.raises(TypeError):
        ProgressFile(name="x", file=file_ref("x"), colour="red")  # type: ignore[call-arg]
    output = StagedOutput(sink="a", file=file_ref("x"), rows=1)
    assert msgspec.structs.replace(made, outputs=(output,)).files() == []


def test_the_size_of_state_counts_a_file_once_that_several_subtasks_refer_to(store: CheckpointStore) -> None:
    made = written(store, 2)
    one, other = (
        msgspec.structs.replace(each, state_rows={"total": 8, "more": 2}) for each in made.operators[0].subtasks
    )
    shared = msgspec.structs.replace(other, keyed=(*one.keyed, *other.keyed))
    operator = msgspec.structs.replace(made.operators[0], subtasks=(one, shared))
    outputs = tuple(StagedOutput(sink=name, file=file_ref(name), rows=3) for name in ("a", "b"))
    found = msgspec.structs.replace(made, operators=(operator,), outputs=outputs)
    assert (found.state_rows, found.rows_out) == (20, 6)
    subtasks = made.operators[0].subtasks
    files = [item.file for each in subtasks for item in each.keyed]
    files += [item.file for each in subtasks for item in each.operator]
    assert len(files) == 4 and found.state_bytes == sum(file.size for file in files)
