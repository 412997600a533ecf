"""Which tests prove each guarantee of docs/guarantees.md, by its number or, without one, its first words.

A test of the page holds both together: the tests exist, and ``make test`` runs at least one for each guarantee.
"""

from __future__ import annotations

_UNIT, _SPARK, _KAFKA, _POSTGRES = "tests/unit", "tests/spark", "tests/kafka", "tests/postgres"
_DRIVER, _SNAPSHOT = f"{_SPARK}/runtime/driver", f"{_UNIT}/snapshot"
_EXACTLY_ONCE = f"{_DRIVER}/test_exactly_once.py"

PROOFS: dict[str, tuple[str, ...]] = {
    "1": (
        # SIGKILL at every fault point, every kind of state, compared with the functions run alone.
        f"{_DRIVER}/test_faults.py",
        f"{_SPARK}/runtime/test_every_state.py",
        f"{_SPARK}/runtime/test_chain.py",
        f"{_DRIVER}/test_s3_job.py",
        f"{_POSTGRES}/runtime/sinks/test_job.py",
        f"{_SPARK}/examples/test_order_payments.py",
        "tests/airflow/examples/demo/test_demo.py",
        # The short form of `make chaos`: processes, a clock, a client that locks the catalog.
        f"{_POSTGRES}/chaos/test_chaos.py",
        # The campaigns' own truth sees a row lost or doubled.
        f"{_UNIT}/chaos/test_lineages.py",
        f"{_UNIT}/chaos/test_numbered.py",
        f"{_KAFKA}/runtime/test_job.py",
        f"{_KAFKA}/runtime/sinks/test_kafka.py",
        # A lost catalog, a roll-back, a copied savepoint.
        f"{_KAFKA}/runtime/test_savepoints.py",
        # Records that are gone.
        f"{_KAFKA}/runtime/test_lost_topics.py",
        f"{_KAFKA}/runtime/test_expired.py",
    ),
    "2": (
        f"{_DRIVER}/test_faults.py",
        f"{_EXACTLY_ONCE}::test_what_a_killed_driver_committed_is_published_by_its_successor",
        f"{_POSTGRES}/runtime/sinks/test_job.py",
        f"{_UNIT}/runtime/epoch/test_publishing.py",
    ),
    "3": (
        f"{_UNIT}/runtime/epoch/test_foreign_epochs.py",
        f"{_EXACTLY_ONCE}::test_a_second_commit_of_an_epoch_is_refused",
        f"{_SNAPSHOT}/test_checkpoints.py"
        "::test_a_driver_that_slept_until_its_epoch_was_cleaned_up_cannot_commit_it_again",
        f"{_UNIT}/storage/test_conditional_put.py",
        "tests/s3/storage/test_two_winners.py",
    ),
    "4": (
        f"{_UNIT}/runtime/worker/test_state.py",
        f"{_UNIT}/runtime/worker/test_operator_state.py",
        f"{_EXACTLY_ONCE}::test_a_failed_attempt_leaves_no_trace",
    ),
    "5": (f"{_DRIVER}/test_rescale.py", f"{_DRIVER}/test_live_rescale.py", f"{_SPARK}/runtime/test_chain.py"),
    "6": (
        f"{_SNAPSHOT}/test_cleanup.py",
        f"{_SNAPSHOT}/test_cleanup_interrupted.py",
        f"{_SNAPSHOT}/test_cleanup_world.py",
        f"{_SNAPSHOT}/test_claims.py",
        f"{_SNAPSHOT}/test_drop_savepoint.py",
        f"{_UNIT}/runtime/driver/test_housekeeping.py",
        f"{_DRIVER}/test_upkeep.py",
        f"{_DRIVER}/test_s3_job.py::test_a_job_lives_in_s3_alone",
    ),
    "7": (
        f"{_SNAPSHOT}/test_checkpoints.py",
        f"{_SNAPSHOT}/test_rescale.py",
        f"{_DRIVER}/test_savepoints.py",
    ),
    "8": (
        f"{_UNIT}/runtime/test_units.py",
        f"{_SPARK}/runtime/test_every_state.py",
        f"{_SPARK}/runtime/epoch/test_time.py",
    ),
    # The newest two values per key; broadcast rules.
    "9": (f"{_DRIVER}/test_rescale.py", f"{_SPARK}/runtime/test_chain.py"),
    "10": (f"{_SPARK}/model/test_key_hash.py", f"{_EXACTLY_ONCE}::test_a_map_key_is_refused"),
    "11": (
        f"{_SNAPSHOT}/test_manifest.py::test_every_flipped_byte_is_refused",
        f"{_SNAPSHOT}/test_verify.py",
        f"{_SNAPSHOT}/test_base_parts.py",
        f"{_UNIT}/runtime/worker/test_state.py::test_a_part_of_a_manifest_that_changed_is_refused",
        f"{_EXACTLY_ONCE}::test_a_flipped_byte_in_a_state_file_stops_the_epoch_with_its_path",
    ),
    # And every test that expects an error with its message.
    "12": (f"{_UNIT}/cli/test_register.py", f"{_SNAPSHOT}/test_verify.py"),
    "13": (
        f"{_UNIT}/queries/job/test_heads.py",
        # Drivers that die anywhere, rollbacks, a catalog from a backup, a sink that skips batches.
        f"{_UNIT}/queries/job/test_model.py",
        f"{_SPARK}/queries/job/test_driver.py",
    ),
    "14": (
        "tests/airflow/plugins/statecore_airflow/operators/test_cleared.py",
        "tests/contracts/catalog/runs.py",
        "tests/contracts/catalog/requests.py",
    ),
    "Attempts do not mix.": (f"{_UNIT}/runtime/epoch/test_commits.py", f"{_SPARK}/runtime/test_fan_out.py"),
    "No input file is skipped in silence.": (f"{_SPARK}/runtime/epoch/test_input_files.py",),
    "One change of a job at a time.": (
        "tests/contracts/catalog/leases.py",
        f"{_UNIT}/catalog/test_leases.py",
        f"{_POSTGRES}/catalog/test_leases.py",
        f"{_POSTGRES}/catalog/test_overlaps.py",
        f"{_UNIT}/cli/test_stop.py",
        f"{_UNIT}/operations/changes/test_finishing.py",
        f"{_UNIT}/operations/test_supervision.py",
        "tests/airflow/operations/test_changes.py",
        "tests/airflow/plugins/statecore_airflow/operators/test_rollback.py",
        # Through a whole Airflow, with exact output after each failure.
        "tests/e2e/test_story.py",
    ),
    "One supervisor acts.": (
        f"{_UNIT}/test_supervisors.py",
        "tests/contracts/catalog/supervisors.py",
        f"{_UNIT}/catalog/test_supervisors.py",
        f"{_POSTGRES}/catalog/test_supervisors.py",
        f"{_POSTGRES}/catalog/test_clock.py",
        # PostgreSQL restarted under a supervisor and a driver.
        f"{_POSTGRES}/runtime/driver/test_failover.py",
        # SIGSTOP of the JVM.
        f"{_DRIVER}/test_hang.py",
    ),
    "Programs have their own rights.": (
        f"{_POSTGRES}/catalog/test_roles.py",
        # Every grant that the database has.
        f"{_POSTGRES}/catalog/test_attacks.py",
        f"{_DRIVER}/test_environment.py",
    ),
    "Job files are pinned.": (
        f"{_UNIT}/runtime/driver/test_permitted_files.py",
        f"{_UNIT}/operations/changes/test_upgrade.py",
        f"{_SNAPSHOT}/test_job_files.py",
        f"{_UNIT}/runtime/test_job_file_check.py",
        f"{_UNIT}/cli/test_register.py",
    ),
    "The tests can fail.": (f"{_UNIT}/invariants/test_removals.py",),
}
