"""What the driver demands of the subtasks' commits before it commits their epoch."""

from __future__ import annotations

import pytest

from statecore.errors import CommitError
from statecore.runtime.epoch.commits import checked_commits
from statecore.runtime.messages import SubtaskCommit
from tests.support.handmade import subtask_commit


def commit(uid: str, subtask: int, attempt: int, *read_from: int) -> SubtaskCommit:
    return subtask_commit(uid, subtask, attempt=attempt, read_from=read_from)


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
