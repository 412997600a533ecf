"""Whether the commits of an epoch's subtasks make a commit of the epoch."""

from __future__ import annotations

from collections.abc import Sequence

from statecore.errors import CommitError
from statecore.runtime.messages import SubtaskCommit


def checked_commits(
    commits: Sequence[SubtaskCommit], uids: Sequence[str], parallelism: int, epoch: int
) -> dict[str, list[SubtaskCommit]]:
    """Return the commits per operator, in the order of its subtasks.

    Raises:
        CommitError: A subtask's is missing or there twice, or one has read rows of an attempt that does not count.

    """
    by_operator = {
        uid: sorted((commit for commit in commits if commit.uid == uid), key=lambda commit: commit.subtask)
        for uid in uids
    }
    for uid, found in by_operator.items():
        subtasks = [commit.subtask for commit in found]
        if subtasks != list(range(parallelism)):
            raise CommitError(
                f"found commits of the subtasks {subtasks} of {uid!r} in epoch {epoch}; "
                f"expected one of each of {parallelism}; the epoch is not committed and will be replayed"
            )
    counting = {commit.attempt for commit in commits}
    for commit in commits:
        if not counting.issuperset(commit.read_from):
            raise CommitError(
                f"found rows of an attempt that was repeated in subtask {commit.subtask} of {commit.uid!r} in "
                f"epoch {epoch}; expected rows of one attempt of each subtask before it, because another may give "
                "other rows; the epoch is not committed and will be replayed"
            )
    return by_operator
