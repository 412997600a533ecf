"""`statecore state`: what a key has, read from the files of a job."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from statecore.catalog import Catalog
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest
from tests.support.every_kind import DAY, KEYS, written
from tests.support.shell import assert_refused, run


@pytest.fixture
def newest(job: str, store: CheckpointStore) -> Manifest:
    made = msgspec.structs.replace(written(store, 3), job=job)
    store.commit(made)
    return made


def asked(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("state", "orders", *arguments, "--json").stdout)
    return found


def test_all_that_a_key_has_is_printed(newest: Manifest) -> None:
    found = asked("--key", "k1, 1")
    assert (found["epoch"], found["key"]) == (newest.epoch, {"k": "k1", "n": 1})
    contents = {each["state"]: each["value"] for each in found["contents"]}
    assert contents == {
        "total": {"n": 1, "tags": ["x", None]},
        "fresh": 1,
        "last": ["e0", "e1"],
        "routes": {"a": 1, "b": None},
        "visits": [[1, "v1"], [-1, "w"]],
        "sums": 1,
        "means": {"n": 1, "tags": []},
        "__event_timers": [1, 101],
    }
    shown = run("state", "orders", "--key", "k1,1").stdout
    assert "key k k1, n 1: epoch" in shown and '"tags": ["x", null]' in shown and "1970-01-01 00:00:00 to" in shown


def test_one_state_and_one_window_are_chosen(newest: Manifest) -> None:
    found = asked("--key", "k1,1", "--state", "sums", "--window", str(DAY.start))
    assert [(each["window_end_ms"], each["value"]) for each in found["contents"]] == [(DAY.end, 1)]
    assert asked("--key", "k1,1", "--state", "sums", "--window", "5")["contents"] == []
    assert "nothing in state" in run("state", "orders", "--key", "nobody,1").stdout
    alone = run("state", "orders", "--key", "k1,1", "--window", "5").stdout
    assert "nothing in state of a window that starts at 5" in alone


def test_what_a_job_hides_is_not_shown(newest: Manifest, catalog: Catalog) -> None:
    catalog.jobs.register(
        "orders", artifact="/jobs/orders.py", store=catalog.jobs.get("orders").store, master_url="local[2]",
        parallelism=2, max_parallelism=16, conf={"statecore.state.hidden": "Tags, routes,K"},
    )  # fmt: skip
    found = asked("--key", "k1,1")
    assert found["key"] == {"k": "***", "n": 1}
    contents = {each["state"]: each["value"] for each in found["contents"]}
    assert contents["total"] == {"n": 1, "tags": "***"} and contents["routes"] == "***"
    assert "k1" not in run("state", "orders", "--key", "k1,1").stdout


def test_of_a_long_list_people_see_the_beginning(newest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statecore.cli.state.MOST_SHOWN", 1)
    shown = run("state", "orders", "--key", "k1,1").stdout
    assert '["e0"], and 1 more; --json prints all' in shown and '{"a": 1}, and 1 more' in shown
    (last,) = asked("--key", "k1,1", "--state", "last")["contents"]
    assert (last["value"], last["left_out"]) == (["e0", "e1"], 0)


def test_a_savepoint_is_read_instead(newest: Manifest, store: CheckpointStore) -> None:
    path = store.write_savepoint(newest, "before", reason="", now_ms=1)
    found = asked("--key", "k2,2", "--savepoint", store.describe(path), "--state", "fresh")
    assert [each["value"] for each in found["contents"]] == [2]


def test_what_cannot_be_found_is_refused(job: str, newest: Manifest) -> None:
    (uid,) = (operator.uid for operator in newest.operators)
    assert_refused(run("state", job, "--key", "k1"), "found the key 'k1'", "(k string, n int)")
    assert_refused(run("state", job, "--key", "k1,x"), "found 'x' for the key column n", "type int")
    assert_refused(run("state", job, "--key", "k1,1", "--uid", "sums"), "expected 'sums'", uid)
    assert_refused(run("state", job, "--key", "k1,1", "--state", "sum"), "found no keyed state 'sum'", "'sums'")


def test_before_its_first_epoch_a_job_has_none(job: str) -> None:
    assert_refused(run("state", job, "--key", "k1"), "found no committed epoch of orders", "statecore status orders")


def test_every_key_of_a_job_is_found(newest: Manifest) -> None:
    for n, (k, number) in enumerate(KEYS):
        (content,) = asked("--key", f"{k},{number}", "--state", "means")["contents"]
        assert content["value"]["n"] == n
