"""A plan says what a rescale will give every subtask, to the row, and touches nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import CorruptFileError, InvalidParallelismError, MissingFileError
from statecore.model import DistributionMode, KeyGroupRange, StateKind, key_group_range
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import (
    KeyedRows,
    decode_base,
    decode_changelog,
    encode_base,
    encode_changelog,
    key_schema,
    rows_table,
)
from statecore.snapshot.manifest import FileKind, KeyedFile, Manifest, OperatorFile, PartitionsRef, SubtaskState
from statecore.snapshot.plan import OperatorPlan, SubtaskPlan, plan_rescale
from statecore.snapshot.rescale import rescale_by_reference
from statecore.state import TableSchema
from tests.support.examples import examples
from tests.support.handmade import MAX_PARALLELISM, TOTAL, keyed_file, manifest, operator, operator_file, written


# The machine may be busy; slowness proves nothing here.
def rows_of(store: CheckpointStore, item: KeyedFile) -> int:
    """Count the rows that a reference takes from its file, by reading it as a restore does."""
    decode = decode_base if item.kind is FileKind.BASE else decode_changelog
    return len(decode(store.read_file(item.file), KeyGroupRange(*item.key_groups)).keys)


def distributed(store: CheckpointStore, path: str, groups: list[int], kind: FileKind, own: KeyGroupRange) -> KeyedFile:
    """Write a file with a row for each key group in a list, which may have one often."""
    groups = sorted(groups)
    rows = KeyedRows(
        [(f"k{n}",) for n in range(len(groups))],
        groups,
        [1] * len(groups),
        deleted=None if kind is FileKind.BASE else [False] * len(groups),
    )
    encode = encode_base if kind is FileKind.BASE else encode_changelog
    file = store.write_file(path, encode(rows_table(rows, key_schema([("k", "string")]), TOTAL, "total")))
    return KeyedFile(
        file=file, state="total", kind=kind, token="t", key_groups=(own.start, own.end), rows=len(groups)
    )  # fmt: skip


@examples(60)
@given(
    st.integers(1, MAX_PARALLELISM),
    st.integers(1, MAX_PARALLELISM),
    st.lists(st.tuples(st.sampled_from(FileKind), st.lists(st.integers(0, 15), max_size=30)), min_size=1, max_size=4),
    st.lists(st.integers(0, 5), min_size=MAX_PARALLELISM, max_size=MAX_PARALLELISM),
)
def test_what_a_plan_says_is_what_the_restored_subtasks_will_read(
    tmp_path_factory: pytest.TempPathFactory,
    old: int,
    new: int,
    files: list[tuple[FileKind, list[int]]],
    elements: list[int],
) -> None:
    store = CheckpointStore.at(str(tmp_path_factory.mktemp("store")))
    subtasks = []
    for index in range(old):
        own = key_group_range(MAX_PARALLELISM, old, index)
        keyed = [
            distributed(store, f"{index}-{number}", [g for g in groups if g in own], kind, own)
            for number, (kind, groups) in enumerate(files)
        ]
        count = elements[index]
        listed = (operator_file(store, f"{index}-waiting", range(count)),) if count else ()
        subtasks.append(SubtaskState(keyed=tuple(keyed), operator=listed))
    made = manifest(parallelism=old, operators=(operator(subtasks),))

    plan = plan_rescale(store, made, new)
    rescaled = rescale_by_reference(made, new).operators[0].subtasks
    assert (plan.method, plan.bytes_written) == ("by_reference", 0)
    assert (plan.from_parallelism, plan.to_parallelism) == (old, new)
    for index, (planned, state) in enumerate(zip(plan.subtasks, rescaled, strict=True)):
        own = key_group_range(MAX_PARALLELISM, new, index)
        assert (planned.subtask, planned.key_groups) == (index, (own.start, own.end))
        assert planned.files == len(state.keyed) + len(state.operator)
        taken = sum(len(item.partitions.offsets) for item in state.operator)
        assert planned.rows == sum(rows_of(store, item) for item in state.keyed) + taken
    everything = sum(len(groups) for _, groups in files) + sum(elements[:old])
    assert plan.rows == everything
    fullest = max(planned.rows for planned in plan.subtasks)
    assert plan.skew == pytest.approx(fullest / (everything / new) if everything else 1.0)


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
    }  # fmt: skip


@pytest.mark.parametrize("max_parallelism", [None, 64], ids=["by reference", "rewrite"])
def test_a_plan_writes_nothing_and_moves_nothing(
    store: CheckpointStore, tmp_path: Path, max_parallelism: int | None
) -> None:
    made = written(store, 3)
    store.write_savepoint(made, "sp", reason="", now_ms=0)
    before = everything(tmp_path)
    plan_rescale(store, made, 5, max_parallelism)
    assert everything(tmp_path) == before


def test_a_file_that_several_subtasks_share_is_read_once_and_split_among_them(store: CheckpointStore) -> None:
    made = written(store, 1)
    (base,), (listed,) = made.operators[0].subtasks[0].keyed, made.operators[0].subtasks[0].operator
    seen: list[tuple[int, int]] = []
    plan = plan_rescale(store, made, 4, progress=lambda done, count: seen.append((done, count)))
    assert seen == [(1, 1)]
    assert [planned.rows for planned in plan.subtasks] == [5, 5, 5, 4]
    assert [planned.files for planned in plan.subtasks] == [2, 2, 2, 1]
    # Sixteen rows and three elements.
    assert [planned.bytes for planned in plan.subtasks] == [
        *[pytest.approx(base.file.size / 4 + listed.file.size / 3, abs=1)] * 3,
        pytest.approx(base.file.size / 4, abs=1),
    ]


def test_at_unchanged_parallelism_every_subtask_has_the_bytes_of_its_files(store: CheckpointStore) -> None:
    made = written(store, 2)
    plan = plan_rescale(store, made, 2)
    for planned, state in zip(plan.subtasks, made.operators[0].subtasks, strict=True):
        assert planned.bytes == sum(item.file.size for item in (*state.keyed, *state.operator))  # type: ignore[attr-defined]
        assert planned.rows == 8 + 3


def written_often(store: CheckpointStore, epochs: int, state_rows: dict[str, int]) -> Manifest:
    """Write a key of each key group anew in every epoch, as changelogs on a base."""
    values = dict.fromkeys(range(MAX_PARALLELISM), 1)
    files = [keyed_file(store, "base", values, (0, 15), kind=FileKind.BASE, token="0")]
    for epoch in range(1, epochs):
        files.append(
            keyed_file(store, f"log-{epoch}", values, (0, 15), kind=FileKind.CHANGELOG, token=str(epoch))
        )  # fmt: skip
    return manifest(operators=(operator([SubtaskState(keyed=tuple(files), state_rows=state_rows)]),))


@pytest.mark.parametrize("max_parallelism", [None, 64], ids=["by reference", "rewrite"])
def test_a_row_that_was_written_often_is_one_row(store: CheckpointStore, max_parallelism: int | None) -> None:
    made = written_often(store, 30, {"total": MAX_PARALLELISM})
    plan = plan_rescale(store, made, 3, max_parallelism)
    assert (plan.rows, sorted(each.rows for each in plan.subtasks)) == (MAX_PARALLELISM, [5, 5, 6])
    files = made.operators[0].subtasks[0].keyed
    size = round(sum(item.file.size for item in files) / len(files))
    assert sum(each.bytes for each in plan.subtasks) == size
    assert plan.operators == (OperatorPlan("totals", MAX_PARALLELISM, size),)
    assert plan.bytes_written == (0 if max_parallelism is None else size)


def test_rows_that_nobody_counted_are_those_of_the_files(store: CheckpointStore) -> None:
    assert plan_rescale(store, written_often(store, 3, {}), 4).rows == 3 * MAX_PARALLELISM


def test_each_subtask_counts_for_its_own_key_groups(store: CheckpointStore) -> None:
    """One has merged its changelogs, the other has not: that alone makes no skew."""
    merged = keyed_file(store, "merged", dict.fromkeys(range(8), 1), (0, 7), kind=FileKind.BASE, token="a")
    logs = [
        keyed_file(store, f"log-{n}", dict.fromkeys(range(8, 16), 1), (8, 15), kind=FileKind.CHANGELOG, token=str(n))
        for n in range(5)
    ]
    subtasks = [SubtaskState(keyed=(merged,)), SubtaskState(keyed=tuple(logs), state_rows={"total": 8})]
    plan = plan_rescale(store, manifest(parallelism=2, operators=(operator(subtasks),)), 4)
    assert ([each.rows for each in plan.subtasks], plan.skew) == ([4] * 4, 1.0)


def with_mode(made: Manifest, mode: DistributionMode, files: list[OperatorFile]) -> Manifest:
    state = msgspec.structs.replace(made.operators[0].states[1], mode=mode, strategy=None)
    subtasks = tuple(SubtaskState(operator=(item,)) for item in files)
    changed = msgspec.structs.replace(made.operators[0], states=(state,), subtasks=subtasks)
    return msgspec.structs.replace(made, operators=(changed,))


def test_everybody_reads_all_of_a_union(store: CheckpointStore) -> None:
    files = [operator_file(store, f"{n}-votes", range(n + 1), DistributionMode.UNION) for n in range(2)]
    made = with_mode(manifest(parallelism=2), DistributionMode.UNION, files)
    size = sum(item.file.size for item in files)
    plan = plan_rescale(store, made, 3)
    assert [(p.files, p.rows, p.bytes) for p in plan.subtasks] == [(2, 3, size)] * 3
    assert plan.skew == 1.0


def test_the_skew_is_the_fullest_subtask_against_the_average(store: CheckpointStore) -> None:
    base = distributed(store, "base", [0] * 90 + [15] * 10, FileKind.BASE, KeyGroupRange(0, 15))
    made = manifest(operators=(operator([SubtaskState(keyed=(base,))]),))
    assert [p.rows for p in plan_rescale(store, made, 4).subtasks] == [90, 0, 0, 10]
    assert plan_rescale(store, made, 4).skew == pytest.approx(3.6)
    assert plan_rescale(store, made, 1).skew == 1.0


def test_a_rewrite_at_the_same_max_parallelism_writes_all_keyed_state_also_of_a_fixed_operator(
    store: CheckpointStore,
) -> None:
    made = written(store, 2)
    (of_job,) = made.operators
    fixed = msgspec.structs.replace(of_job, uid="fixed", own_parallelism=2)
    both = msgspec.structs.replace(made, operators=(of_job, fixed))
    keyed_bytes = sum(item.file.size for s in of_job.subtasks for item in s.keyed)
    plan = plan_rescale(store, both, 3, rewrite=True)
    assert (plan.method, plan.bytes_written) == ("rewrite", 2 * keyed_bytes)


def test_without_state_there_is_nothing_to_read_and_no_skew(store: CheckpointStore) -> None:
    plan = plan_rescale(store, manifest(), 2, progress=lambda done, count: pytest.fail("there is no file"))
    assert plan.subtasks == (SubtaskPlan(0, (0, 7), 0, 0, 0), SubtaskPlan(1, (8, 15), 0, 0, 0))
    assert (plan.rows, plan.skew) == (0, 1.0)
    assert plan.operators == (OperatorPlan("totals", 0, 0),)


def test_a_base_without_rows_is_read_like_any_other(store: CheckpointStore) -> None:
    base = distributed(store, "base", [], FileKind.BASE, KeyGroupRange(0, 15))
    made = manifest(operators=(operator([SubtaskState(keyed=(base,))]),))
    assert [(p.files, p.rows, p.bytes) for p in plan_rescale(store, made, 2).subtasks] == [(1, 0, 0)] * 2


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(3, 64), (40, 64), (3, 8), (8, 8)])
def test_with_another_max_parallelism_keyed_state_is_written_anew_in_even_shares(
    store: CheckpointStore, parallelism: int, max_parallelism: int
) -> None:
    made = written(store, 2)
    keyed_bytes = sum(item.file.size for s in made.operators[0].subtasks for item in s.keyed)
    plan = plan_rescale(store, made, parallelism, max_parallelism)

    assert (plan.method, plan.bytes_written) == ("rewrite", keyed_bytes)
    assert (plan.from_max_parallelism, plan.to_max_parallelism) == (MAX_PARALLELISM, max_parallelism)
    ranges = [key_group_range(max_parallelism, parallelism, index) for index in range(parallelism)]
    assert [planned.key_groups for planned in plan.subtasks] == [(own.start, own.end) for own in ranges]
    assert plan.rows == MAX_PARALLELISM + 6
    # Operator state moves by reference all the same.
    (of_job,) = made.operators
    listed = operator([SubtaskState(operator=state.operator) for state in of_job.subtasks])
    moved = rescale_by_reference(
        msgspec.structs.replace(made, operators=(listed,), max_parallelism=max_parallelism), parallelism
    )
    assert sum(planned.rows for planned in plan.subtasks) == MAX_PARALLELISM + 6
    for planned, own, state in zip(plan.subtasks, ranges, moved.operators[0].subtasks, strict=True):
        elements = sum(len(item.partitions.offsets) for item in state.operator)
        assert abs(planned.rows - elements - MAX_PARALLELISM * len(own) / max_parallelism) < 1
        assert planned.files == 1 + len(state.operator)


def test_of_a_file_that_is_shared_in_part_a_rewrite_writes_that_part_alone(store: CheckpointStore) -> None:
    """The other subtask has a base of its own meanwhile."""
    shared = keyed_file(store, "shared", dict.fromkeys(range(16), 1), (8, 15), kind=FileKind.BASE, token="a")
    own = keyed_file(store, "own", {1: 1}, (0, 7), kind=FileKind.BASE, token="b")
    made = manifest(parallelism=2, operators=(operator([SubtaskState(keyed=(own,)), SubtaskState(keyed=(shared,))]),))
    plan = plan_rescale(store, made, 2, 32)
    assert plan.rows == 9
    assert plan.bytes_written == round(own.file.size + shared.file.size / 2)
    assert sum(planned.bytes for planned in plan.subtasks) == plan.bytes_written


@pytest.mark.parametrize(
    ("parallelism", "max_parallelism"), [(0, None), (17, None), (9, 8), (1, 0), (1, 32769), (-1, 64)]
)
def test_a_parallelism_out_of_bounds_is_refused_before_a_file_is_read(
    store: CheckpointStore, parallelism: int, max_parallelism: int | None
) -> None:
    with pytest.raises(InvalidParallelismError):
        plan_rescale(store, written(store, 1), parallelism, max_parallelism, progress=lambda *_: pytest.fail("read"))


def test_progress_counts_every_keyed_file_once(store: CheckpointStore) -> None:
    seen: list[tuple[int, int]] = []
    plan_rescale(store, written(store, 5), 2, progress=lambda done, count: seen.append((done, count)))
    assert seen == [(n, 5) for n in range(1, 6)]


def test_a_file_that_is_not_there_is_named(store: CheckpointStore) -> None:
    made = written(store, 2)
    path = made.operators[0].subtasks[1].keyed[0].file.path
    store.files.delete(path)
    with pytest.raises(MissingFileError, match=path):
        plan_rescale(store, made, 1)


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize("kind", FileKind)
@pytest.mark.parametrize("damage", [lambda _: b"", truncated, lambda _: b"x" * 5000], ids=["empty", "cut", "foreign"])
def test_a_file_that_cannot_be_read_is_named(store: CheckpointStore, kind: FileKind, damage: Any) -> None:
    item = distributed(store, "state/f", [1, 2, 3], kind, KeyGroupRange(0, 15))
    store.files.write("state/f", damage(store.files.read("state/f")))
    made = manifest(operators=(operator([SubtaskState(keyed=(item,))]),))
    with pytest.raises(CorruptFileError, match=rf"{store.files.url}/state/f unreadable .*expected a {kind}.*verify"):
        plan_rescale(store, made, 2)


@pytest.mark.parametrize("kind", FileKind)
def test_wherever_a_file_is_damaged_it_is_named_or_does_not_matter(store: CheckpointStore, kind: FileKind) -> None:
    item = distributed(store, "state/f", [1, 2, 3] * 50, kind, KeyGroupRange(0, 15))
    data = store.files.read("state/f")
    made = manifest(operators=(operator([SubtaskState(keyed=(item,))]),))
    named = 0
    for position in range(0, len(data), 5):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        for bytes_there in (bytes(damaged), data[:position]):
            (Path(store.files.url) / "state/f").write_bytes(bytes_there)
            try:
                plan_rescale(store, made, 2)
            except CorruptFileError as error:
                named += "state/f" in str(error)
    assert named > len(data) / 5


def test_a_table_of_somebody_else_is_named(store: CheckpointStore) -> None:
    item = distributed(store, "state/f", [1], FileKind.CHANGELOG, KeyGroupRange(0, 15))
    parquet = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": ["a"]}), parquet)
    files = {
        FileKind.CHANGELOG: encode_changelog(pa.table({"k": ["a"]})),
        FileKind.BASE: parquet.getvalue().to_pybytes(),
    }
    for kind, data in files.items():
        store.files.write("state/f", data)
        foreign = msgspec.structs.replace(item, kind=kind)
        with pytest.raises(CorruptFileError, match="state/f"):
            plan_rescale(store, manifest(operators=(operator([SubtaskState(keyed=(foreign,))]),)), 2)


def test_key_groups_are_found_behind_a_key_that_takes_several_columns(store: CheckpointStore) -> None:
    schema = TableSchema(StateKind.MAP, "map<string,bigint>", windowed=True)
    keys = key_schema([("a", "struct<x:int,_key_group:int>"), ("b", "array<string>")])
    rows = KeyedRows(
        [((1, 2), ["z"]), ((3, 4), [])], [3, 9], [1, 2], windows=[None, None], map_keys=["m", "n"], deleted=[False] * 2
    )
    for kind, encode in [(FileKind.CHANGELOG, encode_changelog), (FileKind.BASE, encode_base)]:
        of_kind = (
            rows if kind is FileKind.CHANGELOG else KeyedRows(rows.keys, [3, 9], [1, 2], rows.windows, rows.map_keys)
        )
        file = store.write_file("f", encode(rows_table(of_kind, keys, schema, "total")))
        item = KeyedFile(file=file, state="total", kind=kind, token="t", key_groups=(0, 15), rows=2)
        made = manifest(operators=(operator([SubtaskState(keyed=(item,))]),))
        assert [p.subtask for p in plan_rescale(store, made, MAX_PARALLELISM).subtasks if p.rows] == [3, 9]


def test_every_operator_counts(store: CheckpointStore) -> None:
    made = written(store, 2)
    other = msgspec.structs.replace(made.operators[0], uid="others")
    both = msgspec.structs.replace(made, operators=(*made.operators, other))
    assert plan_rescale(store, both, 3).rows == 2 * plan_rescale(store, made, 3).rows
    assert [each.uid for each in plan_rescale(store, both, 3).operators] == ["totals", "others"]


def test_an_operator_list_given_away_in_parts_is_counted_in_parts(store: CheckpointStore) -> None:
    item = operator_file(store, "waiting", range(6))
    halves = [
        msgspec.structs.replace(item, partitions=PartitionsRef(mode=item.partitions.mode, offsets=offsets))
        for offsets in [(0, 1, 2), (3, 4, 5)]
    ]
    made = manifest(parallelism=2, operators=(operator([SubtaskState(operator=(half,)) for half in halves]),))
    assert [(p.rows, p.bytes) for p in plan_rescale(store, made, 2).subtasks] == [(3, item.file.size // 2)] * 2
    assert [(p.files, p.rows, p.bytes) for p in plan_rescale(store, made, 1).subtasks] == [
        (2, 6, item.file.size // 2 * 2)
    ]
