"""The broadcast example against a direct pairing of all items, at any parallelism and over rescales."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from examples import shape_rules
from examples.shape_rules import RULES, Item, Match, Matcher, Rule
from statecore.errors import StateError
from statecore.testing import BroadcastOperatorHarness

ROOF = Rule("roof", "square", "triangle")
TWINS = Rule("twins", "circle", "circle")
COLORS = ("red", "blue", "green", "grey", "pink", "gold")
SHAPES = ("square", "triangle", "circle", "star")


def matches(matcher: Matcher, events: Sequence[Rule | Item]) -> list[Match]:
    found: list[Match] = []
    for event in events:
        if isinstance(event, Rule):
            matcher.rule(event)
        else:
            found.extend(matcher.item(event))
    return found


def pairs(events: Sequence[Rule | Item]) -> list[Match]:
    """Pair items without any state: look back over everything for every item."""
    found = []
    for now, item in enumerate(events):
        if isinstance(item, Item):
            for name, (since, rule) in rules_at(events, now).items():
                if item.shape == rule.second:
                    found.extend(pairs_with(item, name, rule, events[since:now]))
    return found


def rules_at(events: Sequence[Rule | Item], now: int) -> dict[str, tuple[int, Rule]]:
    rules: dict[str, tuple[int, Rule]] = {}
    for at, event in enumerate(events[:now]):
        if isinstance(event, Rule) and rules.get(event.name, (0, None))[1] != event:
            rules[event.name] = at, event
    return rules


def pairs_with(item: Item, name: str, rule: Rule, before: Sequence[Rule | Item]) -> list[Match]:
    waited = []
    for other in reversed(before):
        if isinstance(other, Item) and other.color == item.color:
            if other.shape == rule.first:
                waited.append(other)
            if other.shape == rule.second:
                break
    return [Match(name, item.color, other.number, item.number) for other in reversed(waited)]


def random_events(seed: int, count: int = 400) -> list[Rule | Item]:
    chosen = random.Random(seed)
    events: list[Rule | Item] = [ROOF, TWINS]
    for number in range(count):
        if chosen.random() < 0.03:
            name = chosen.choice(("roof", "twins", "third"))
            events.append(Rule(name, chosen.choice(SHAPES), chosen.choice(SHAPES)))
        events.append(Item(number, chosen.choice(COLORS), chosen.choice(SHAPES)))
    return events


@pytest.mark.parametrize("parallelisms", [(1, 1), (2, 3), (3, 2), (1, 4), (5, 1)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_matches_are_those_of_a_direct_pairing_with_a_rescale_in_the_middle(
    seed: int, parallelisms: tuple[int, int]
) -> None:
    events = random_events(seed)
    expected = pairs(events)
    assert len(expected) > 50

    before = Matcher(parallelisms[0])
    found = matches(before, events[:200])
    found += matches(before.rescaled(parallelisms[1]), events[200:])

    assert sorted(found) == sorted(expected)


def test_an_item_is_paired_with_every_item_that_waits_and_then_none_of_them_waits_any_more() -> None:
    red = [Item(1, "red", "square"), Item(2, "red", "square"), Item(3, "red", "triangle"), Item(4, "red", "triangle")]
    assert matches(Matcher(1), [ROOF, *red]) == [("roof", "red", 1, 3), ("roof", "red", 2, 3)]


def test_items_of_different_colors_make_no_pair() -> None:
    assert matches(Matcher(1), [ROOF, Item(1, "red", "square"), Item(2, "blue", "triangle")]) == []


def test_a_replaced_rule_drops_what_waited_for_it_and_nothing_else() -> None:
    waiting = [Item(1, "red", "square"), Item(2, "red", "circle")]
    replaced = Rule("roof", "square", "star")
    ends = [Item(3, "red", "star"), Item(4, "red", "circle")]
    assert matches(Matcher(2), [ROOF, TWINS, *waiting, replaced, *ends]) == [("twins", "red", 2, 4)]


def test_the_same_rule_once_more_drops_nothing() -> None:
    assert matches(Matcher(2), [ROOF, Item(1, "red", "square"), ROOF, Item(2, "red", "triangle")]) == [
        ("roof", "red", 1, 2)
    ]


def test_the_side_of_the_items_may_not_write_the_rules() -> None:
    class Forger(shape_rules.ShapeRules):
        def process_element(self, item, ctx):
            ctx.get_broadcast_state(RULES).put("mine", ROOF)

    harness = BroadcastOperatorHarness(Forger(), broadcast=[RULES], key=lambda item: (item.color,))
    with pytest.raises(StateError, match="broadcast side alone may write"):
        harness.process(Item(1, "red", "square"))


def test_the_story_is_printed_with_its_matches(capsys: pytest.CaptureFixture[str]) -> None:
    shape_rules.main()
    printed = capsys.readouterr().out
    for match in ("roof: 1 and 5", "roof: 3 and 5", "twins: 4 and 6", "roof: 2 and 7", "roof: 10 and 11"):
        assert f"MATCH {match}" in printed
    assert printed.count("MATCH") == 5
