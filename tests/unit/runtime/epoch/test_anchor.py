"""Where subtasks have their slots, and when the layout is made anew."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from statecore.runtime.epoch.anchor import Anchor, lay_anchor


def laid(homes: str, slots: tuple[int, ...] | None = None) -> Anchor:
    """Return a layout over executors of one letter each, without a table."""
    table: Any = None
    return Anchor(table, slots or tuple(range(len(homes))), tuple(homes), frozenset(homes))


def test_a_layout_lasts_until_an_executor_leaves_or_one_that_came_takes_a_load_off() -> None:
    assert not laid("aabb").is_overtaken(frozenset("ab"))
    assert laid("aabb").is_overtaken(frozenset("a"))
    assert laid("aabb").is_overtaken(frozenset("abcd"))
    # With two of three, one still has two.
    assert not laid("aab").is_overtaken(frozenset("ab"))
    assert not laid("ab").is_overtaken(frozenset("abc"))


def test_only_subtasks_with_key_groups_from_elsewhere_have_moved() -> None:
    assert laid("aabb").moved(laid("ab"), 128) == []
    assert laid("abab").moved(laid("ab"), 128) == [1, 2]
    assert laid("ab").moved(laid("aab"), 126) == [1]


def test_a_subtask_takes_a_slot_where_its_key_groups_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from statecore.runtime.epoch import anchor

    def spread(*_: Any) -> tuple[None, list[str]]:
        return None, list("baba")

    monkeypatch.setattr(anchor, "active_executors", lambda _: frozenset("ab"))
    monkeypatch.setattr(anchor, "_spread", spread)
    found = lay_anchor(None, 4, 128, laid("ab"))  # type: ignore[arg-type]
    assert found.homes == tuple("aabb")
    assert Counter(found.slots) == Counter(range(4))
    assert found.moved(laid("ab"), 128) == []
