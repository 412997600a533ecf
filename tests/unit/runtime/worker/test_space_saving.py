"""The sketch of the most frequent items: it never says too much, and too little by no more than its bound."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from statecore.runtime.worker.space_saving import SpaceSaving
from tests.support.examples import examples


@examples(200)
@given(items=st.lists(st.sampled_from("aaaabbbcdefghij"), min_size=1, max_size=200), counters=st.integers(1, 6))
def test_an_item_was_seen_as_often_as_is_said_or_by_at_most_a_share_of_the_whole_more(
    items: list[str], counters: int
) -> None:
    sketch: SpaceSaving[str] = SpaceSaving(counters)
    for item in items:
        sketch.add(item)
    said, most = dict(sketch.counts()), len(items) / counters
    assert len(said) <= counters
    for item, count in Counter(items).items():
        assert count - most <= said.get(item, 0) <= count
        # What comes more often than the bound has a counter.
        assert count <= most or item in said


def test_items_that_cannot_be_compared_are_counted() -> None:
    sketch: SpaceSaving[tuple[object]] = SpaceSaving(2)
    for item in (("a",), (None,), (1,), (1,)):
        sketch.add(item)
    assert dict(sketch.counts()) == {(None,): 1, (1,): 2}
