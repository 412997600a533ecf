"""The operator state example: over rescales nothing is lost and nothing comes twice."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from examples import buffering_sink
from examples.buffering_sink import Buffers, Payment


def payments(count: int) -> list[Payment]:
    return [Payment(number, 10 * number) for number in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_over_rescales_every_payment_is_in_one_batch_or_waits(seed: int) -> None:
    chosen = random.Random(seed)
    rest, threshold = payments(200), chosen.randrange(2, 9)
    buffers, batches = Buffers(threshold, parallelism=2), []
    for parallelism in (3, 1, chosen.randrange(1, 7), 2):
        cut = chosen.randrange(len(rest) // 2)
        buffers.process(rest[:cut])
        rest = rest[cut:]
        batches += buffers.batches()
        buffers = buffers.rescaled(parallelism)
    buffers.process(rest)
    batches += buffers.batches()

    assert {len(batch) for batch in batches} == {threshold}
    handed_on = [payment for batch in batches for payment in batch]
    waiting = [payment for subtask in buffers.waiting() for payment in subtask]
    assert Counter(handed_on + waiting) == Counter(payments(200))
    assert len(waiting) < 2 * threshold


def test_a_rescale_from_2_to_3_splits_what_waits_and_one_from_3_to_1_joins_it() -> None:
    buffers = Buffers(threshold=10, parallelism=2)
    buffers.process(payments(7))
    assert [len(subtask) for subtask in buffers.waiting()] == [4, 3]

    wider = buffers.rescaled(3)
    assert [len(subtask) for subtask in wider.waiting()] == [3, 2, 2]

    (joined,) = wider.rescaled(1).waiting()
    assert sorted(joined) == payments(7)


def test_buffers_that_a_rescale_joined_leave_in_batches_of_the_threshold() -> None:
    buffers = Buffers(threshold=3, parallelism=4)
    buffers.process(payments(8))
    assert buffers.batches() == []

    joined = buffers.rescaled(1)
    joined.process([Payment(8, 80)])

    assert [len(batch) for batch in joined.batches()] == [3, 3, 3]
    assert joined.waiting() == [[]]


def test_the_story_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    buffering_sink.main()
    printed = capsys.readouterr().out
    assert printed.count("batch of 4:") == 5
    assert "rescale to 3" in printed
    assert printed.rstrip().endswith("subtask 0 holds 21 22 23")
