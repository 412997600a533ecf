"""What the driver demands of the subtasks' commits before it commits their epoch."""

from __future__ import annotations

import pytest

from statecore.errors import CommitError
from statecore.runtime.epoch.commits import checked_commits
from statecore.runtime.messages import SubtaskCommit


def commit(uid: str, subtask: int, attempt: int, *read_from: int) -> SubtaskCommit:
    return SubtaskCommit(
        uid=uid, subtask=subtask, attempt=attempt, read_from=read_from, keyed=(), replaces=False, operator=None,
        operator_token="", states=(), outputs=(), rows=0, broadcast_rows=0, late_rows=0,
        late_broadcast_rows=0, max_event_time_ms=None, max_broadcast_event_time_ms=None, next_event_timer_ms=None,
        next_processing_timer_ms=None, key_groups=0, cached_key_groups=0, state_rows={}, key_group_rows=None,
        load_ms=0, process_ms=0, write_ms=0, memory_used=0, memory_limit=1,
    )  # fmt: skip


def test_commits_are_given_by_operator_in_the_order_of_subtasks() -> None:
    found = [commit("b", 1, 4, 1, 2), commit("a", 1, 2), commit("b", 0, 3, 1), commit("a", 0, 1)]
    checked = checked_commits(found, {"a": 2, "b": 2}, 7)
    assert {uid: [each.attempt for each in of_uid] for uid, of_uid in checked.items()} == {"a": [1, 2], "b": [3, 4]}


def test_rows_of_an_attempt_that_was_repeated_are_never_committed() -> None:
    # Attempt 9 of a's first subtask was repeated as attempt 1; b's second subtask had read from it before.
    found = [commit("a", 0, 1), commit("a", 1, 2), commit("b", 0, 3, 1, 2), commit("b", 1, 4, 9, 2)]
    with pytest.raises(CommitError, match=r"repeated attempt in subtask 1 of 'b' in epoch 7; expected .* replay"):
        checked_commits(found, {"a": 2, "b": 2}, 7)


@pytest.mark.parametrize("subtasks", [[0], [0, 0], [0, 1, 1], [1, 2], []])
def test_a_subtask_that_is_missing_or_there_twice_is_refused(subtasks: list[int]) -> None:
    found = [commit("a", subtask, index) for index, subtask in enumerate(subtasks)]
    with pytest.raises(
        CommitError, match=r"found commits of the subtasks \[.*\] of 'a' in epoch 7; expected one of each"
    ):
        checked_commits(found, {"a": 2}, 7)
