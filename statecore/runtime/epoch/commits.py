"""Checks that the subtasks' commits are complete and consistent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from statecore.errors import CommitError
from statecore.runtime.messages import SubtaskCommit


def checked_commits(
    commits: Sequence[SubtaskCommit], parallelism: Mapping[str, int], epoch: int
) -> dict[str, list[SubtaskCommit]]:
    """Return the commits per operator, in the order of its subtasks.

    Args:
        commits: The commits of all subtasks.
        parallelism: Per operator uid the number of its subtasks.
        epoch: The epoch.

    Raises:
        CommitError: A subtask's commit is missing or duplicate, or it read rows of an attempt that was not committed.

    """
    by_operator = {
        uid: sorted((commit for commit in commits if commit.uid == uid), key=lambda commit: commit.subtask)
        for uid in parallelism
    }
    for uid, own in by_operator.items():
        subtasks = [commit.subtask for commit in own]
        if subtasks != list(range(parallelism[uid])):
            raise CommitError(
                f"found commits of the subtasks {subtasks} of {uid!r} in epoch {epoch}; "
                f"expected one of each of {parallelism[uid]}; the next driver replays the epoch"
            )
    counting = {commit.attempt for commit in commits}
    for commit in commits:
        if not counting.issuperset(commit.read_from):
            raise CommitError(
                f"found rows of a repeated attempt in subtask {commit.subtask} of {commit.uid!r} in epoch {epoch}; "
                "expected rows of one attempt of each upstream subtask, because another attempt may produce other "
                "rows; the next driver replays the epoch"
            )
    return by_operator
