"""For each invariant of docs/guarantees.md: a line that keeps it, and a test that fails without it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Removal:
    """A change that takes an invariant's keeper away.

    Attributes:
        invariant: Its number.
        file: Path in the repository.
        kept: What stands there, once.
        removed: What stands there without it.
        test: The test that must fail then.

    """

    invariant: int
    file: str
    kept: str
    removed: str
    test: str


REMOVALS = (
    Removal(
        1,
        "statecore/runtime/driver/resume.py",
        "        lay_down_progress(point.manifest, source, checkpoint_directory, sources)\n",
        "",
        "tests/spark/runtime/driver/test_rescale.py::test_state_and_outputs_survive_3_to_5_to_1_subtasks",
    ),
    Removal(
        1,
        "statecore/runtime/epoch/publishing.py",
        "    if markers.hold(staged):\n        return\n",
        "",
        "tests/spark/runtime/sinks/test_function.py",
    ),
    Removal(
        1,
        "statecore/runtime/sinks/delta.py",
        "        if self._holds(table, staged):\n            return\n",
        "",
        "tests/unit/runtime/sinks/test_delta.py::test_an_epoch_is_a_transaction_and_published_again_it_is_none",
    ),
    Removal(
        2,
        "statecore/runtime/epoch/runner.py",
        "        if there is not None:\n",
        "        if False:\n",
        "tests/unit/runtime/epoch/test_foreign_epochs.py",
    ),
    Removal(
        2,
        "statecore/runtime/epoch/commits.py",
        "        if not counting.issuperset(commit.read_from):\n",
        "        if False:\n",
        "tests/unit/runtime/epoch/test_commits.py::test_rows_of_an_attempt_that_was_repeated_are_never_committed",
    ),
    Removal(
        3,
        "statecore/storage/local.py",
        "os.link(temporary, target)",
        "os.replace(temporary, target)",
        "tests/unit/storage/test_local_store.py::test_no_write_leaves_a_temporary_file_behind_whether_it_wins_or_loses",
    ),
    Removal(
        3,
        "statecore/snapshot/checkpoints.py",
        "        if later:\n",
        "        if False:\n",
        "tests/unit/snapshot/test_checkpoints.py"
        "::test_a_driver_that_slept_until_its_epoch_was_cleaned_up_cannot_commit_it_again",
    ),
    Removal(
        3,
        "statecore/storage/conditional_put.py",
        "            if len(winners) != 1:\n",
        "            if False:\n",
        "tests/unit/storage/test_conditional_put.py",
    ),
    Removal(
        3,
        "statecore/runtime/generation/claim.py",
        "        require_conditional_puts(store.files)\n",
        "",
        "tests/unit/runtime/generation/test_claim.py",
    ),
    Removal(
        4,
        "statecore/runtime/worker/cache.py",
        "cached is not None and cached.token == head:",
        "cached is not None:",
        "tests/unit/runtime/worker/test_state.py::test_going_back_to_an_older_epoch_drops_what_came_after_it",
    ),
    Removal(
        5,
        "statecore/runtime/epoch/lineage.py",
        "rescale_by_reference(newest, parallelism, own)",
        "newest",
        "tests/spark/runtime/driver/test_rescale.py::test_state_and_outputs_survive_3_to_5_to_1_subtasks",
    ),
    Removal(
        6,
        "statecore/snapshot/cleanup.py",
        "yield from named.without(old)",
        "yield from old",
        "tests/unit/snapshot/test_cleanup.py::test_a_savepoint_keeps_its_files_for_as_long_as_it_is_there",
    ),
    Removal(
        6,
        "statecore/snapshot/cleanup.py",
        "old = [each for each in entries if each.modified_ms < before_ms]",
        "old = [*entries]",
        "tests/unit/snapshot/test_cleanup.py::test_nothing_that_is_young_goes",
    ),
    Removal(
        6,
        "statecore/snapshot/cleanup.py",
        " if not _is_later(each.path, newest)]",
        "]",
        "tests/unit/snapshot/test_cleanup.py::test_what_belongs_to_an_epoch_after_the_newest_stays_however_old_it_is",
    ),
    Removal(
        7,
        "statecore/snapshot/verify.py",
        "in_parallel(store.files.size, [ref.path for ref in files], threads=_THREADS)",
        "in_parallel(lambda ref: len(store.read_file(ref)), files, threads=_THREADS)",
        "tests/unit/snapshot/test_verify.py::test_presence_reads_no_file_so_that_its_cost_does_not_grow_with_the_state",
    ),
    Removal(
        8,
        "statecore/runtime/worker/subtask.py",
        "        return self._now_ms\n",
        "        return int(time.time() * 1000)\n",
        "tests/spark/runtime/test_every_state.py",
    ),
    Removal(
        8,
        "statecore/runtime/epoch/progress.py",
        "        return max(recorded_ms, before_ms)\n",
        "        return recorded_ms\n",
        "tests/unit/runtime/test_units.py",
    ),
    Removal(
        9,
        "statecore/runtime/epoch/dataflow.py",
        "joined.sortWithinPartitions(*order) if order else joined",
        "joined",
        "tests/spark/runtime/test_chain.py",
    ),
    Removal(
        10,
        "statecore/model/key_hash.py",
        "return value + 0.0 if value == value else math.nan",
        "return value",
        "tests/unit/model/test_key_hash.py::test_a_value_has_one_canonical_form",
    ),
    Removal(
        10,
        "statecore/runtime/epoch/operator.py",
        "        require_key_type(columns[name].type)\n",
        "        pass\n",
        "tests/spark/runtime/driver/test_exactly_once.py::test_a_map_key_is_refused",
    ),
    Removal(
        11,
        "statecore/snapshot/checkpoints.py",
        "if len(data) != ref.size or sha256 != ref.sha256:",
        "if len(data) != ref.size:",
        "tests/unit/snapshot/test_checkpoints.py::test_a_file_that_changed_is_refused_with_its_path",
    ),
    Removal(
        11,
        "statecore/snapshot/checkpoints.py",
        "            if sha256 != part.sha256:\n",
        "            if False:\n",
        "tests/unit/snapshot/test_base_parts.py::test_every_byte_of_a_row_group_is_checked",
    ),
    Removal(
        11,
        "statecore/snapshot/manifest.py",
        "    _check_checksum(data, header.checksum, name)\n",
        "",
        "tests/unit/snapshot/test_manifest.py::test_every_flipped_byte_is_refused",
    ),
    Removal(
        12,
        "statecore/snapshot/manifest.py",
        "        problem = next(_contradictions(manifest), None)\n",
        "        problem = None\n",
        "tests/unit/snapshot/test_manifest.py::test_a_manifest_that_does_not_fit_is_refused_with_its_name_and_the_reason",
    ),
    Removal(
        13,
        "statecore/queries/job/heads.py",
        "if is_copied(head.checkpoint, each.checkpoint)",
        "",
        "tests/unit/queries/job/test_heads.py",
    ),
    Removal(
        13,
        "statecore/queries/job/heads.py",
        "self._files.put_if_absent(_path(head.number), ",
        "self._files.write(_path(head.number), ",
        "tests/unit/queries/job/test_heads.py::test_of_two_that_append_at_once_one_is_refused",
    ),
    Removal(
        13,
        "statecore/catalog/restoring.py",
        "for field in fields(JobRecord)",
        "for field in fields(JobRecord)[:10]",
        "tests/unit/catalog/test_leases.py",
    ),
    Removal(
        14,
        "plugins/statecore_airflow/operators/change_id.py",
        'return f"{context[\'run_id\']}#{clears}" if clears else str(context["run_id"])',
        'return str(context["run_id"])',
        "tests/airflow/plugins/statecore_airflow/operators/test_cleared.py",
    ),
    Removal(
        14,
        "statecore/operations/changes/lease.py",
        "            require_same(run, self.change.job, self.asked())\n",
        "            pass\n",
        "tests/airflow/plugins/statecore_airflow/operators/test_cleared.py",
    ),
)
