"""Finds pairs of items of one color whose shapes arrive in the order of a rule, while rules arrive and change.

    python -m examples.shape_rules

This is the example of Flink's page on the broadcast state pattern: items are keyed by color, rules are broadcast.
Broadcast state holds the rules, with a copy in every subtask; keyed map state holds the items that wait for their
second half. Both survive a rescale. The command above shows it on harnesses, without Spark. As a job, it takes the
settings ``items`` and ``rules``, directories of JSON files, and ``output``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from statecore import KeyedBroadcastProcessFunction, MapStateDescriptor, key_group_for, subtask_for_key_group
from statecore.functions import BroadcastContext, MapState, ReadOnlyBroadcastContext, RuntimeContext
from statecore.runtime import Job, ParquetSink
from statecore.testing import BroadcastOperatorHarness, HarnessSnapshot

RULES = MapStateDescriptor("rules", "string", "struct<name:string,first:string,second:string>")
WAITING = MapStateDescriptor("waiting", "string", "array<struct<number:bigint,color:string,shape:string>>")

MAX_PARALLELISM = 128


class Item(NamedTuple):
    """A record of the keyed stream."""

    number: int
    color: str
    shape: str


class Rule(NamedTuple):
    """A record of the broadcast stream: a first shape, followed by a second."""

    name: str
    first: str
    second: str


class Match(NamedTuple):
    """A pair that matches a rule: the numbers of both items."""

    rule: str
    color: str
    first: int
    second: int


class ShapeRules(KeyedBroadcastProcessFunction):
    """Pairs an item with the waiting items of its color; paired items no longer wait."""

    def open(self, ctx: RuntimeContext) -> None:
        """Get the waiting items of each rule."""
        self._waiting = ctx.get_map_state(WAITING)

    def process_element(self, item: Item, ctx: ReadOnlyBroadcastContext) -> Iterator[Match]:
        """Check an item against every rule: it may complete pairs, wait for another item, or both."""
        for name, rule in ctx.get_broadcast_state(RULES).items():
            waiting = self._waiting.get(name) or []
            if item.shape == rule.second:
                for first in waiting:
                    yield Match(name, item.color, first.number, item.number)
                waiting = []
            if item.shape == rule.first:
                waiting = [*waiting, item]
            self._keep(name, waiting)

    def process_broadcast_element(self, record: Any, ctx: BroadcastContext) -> None:
        """Store a rule; drop the items that waited under its previous version."""
        rule = Rule(record.name, record.first, record.second)

        def drop(_: tuple[str], waiting: MapState) -> None:
            waiting.remove(rule.name)

        rules = ctx.get_broadcast_state(RULES)
        if rules.get(rule.name) not in (None, rule):
            ctx.apply_to_keyed_state(WAITING, drop)
        rules.put(rule.name, rule)

    def _keep(self, rule: str, waiting: list[Any]) -> None:
        if waiting:
            self._waiting.put(rule, waiting)
        else:
            self._waiting.remove(rule)


def build(job: Job) -> None:
    """Wire the job: items by color, connected with all rules; the pairs out."""
    settings = job.settings

    def read_items(spark: SparkSession) -> DataFrame:
        files = spark.readStream.schema("number bigint, color string, shape string")
        return files.option("maxFilesPerTrigger", 10).json(settings["items"])

    def read_rules(spark: SparkSession) -> DataFrame:
        files = spark.readStream.schema("version bigint, name string, first string, second string")
        return files.json(settings["rules"])

    items = job.source("items", read=read_items).key_by("color", order_by=("number",))
    # Every subtask gets all rules of an epoch before its items, and all get them in the same order.
    rules = job.source("rules", read=read_rules).broadcast(RULES, order_by=("version",))
    pairs = items.connect(rules).process(ShapeRules(), output=Match, uid="pairs")
    pairs.sink("pairs", ParquetSink(f"{settings['output']}/pairs"))


class Matcher:
    """All subtasks of ``ShapeRules``, side by side.

    Args:
        parallelism: Number of subtasks.
        restore_from: Snapshots of the previous subtasks, at any parallelism.

    """

    def __init__(self, parallelism: int, restore_from: Sequence[HarnessSnapshot] = ()) -> None:
        self.subtasks = [
            BroadcastOperatorHarness(
                ShapeRules(),
                broadcast=[RULES],
                key=lambda item: (item.color,),
                max_parallelism=MAX_PARALLELISM,
                parallelism=parallelism,
                subtask=subtask,
                restore_from=restore_from,
            )
            for subtask in range(parallelism)
        ]

    def item(self, item: Item) -> list[Match]:
        """Give an item to the subtask that owns its color, and return the matches it makes."""
        owner = self.subtasks[self.owner(item.color)]
        before = len(owner.output)
        owner.process(item)
        return list(owner.output[before:])

    def rule(self, rule: Rule) -> None:
        """Give a rule to every subtask."""
        for subtask in self.subtasks:
            subtask.process_broadcast(rule)

    def owner(self, color: str) -> int:
        """Return the subtask that owns a color."""
        key_group = key_group_for((color,), ["string"], MAX_PARALLELISM)
        return subtask_for_key_group(MAX_PARALLELISM, len(self.subtasks), key_group)

    def rescaled(self, parallelism: int) -> Matcher:
        """Return subtasks at another parallelism that continue with this state."""
        return Matcher(parallelism, [subtask.snapshot() for subtask in self.subtasks])


BEFORE: tuple[Rule | Item, ...] = (
    Rule("roof", "square", "triangle"),
    Rule("twins", "circle", "circle"),
    Item(1, "red", "square"),
    Item(2, "blue", "square"),
    Item(3, "red", "square"),
    Item(4, "green", "circle"),
    Item(5, "red", "triangle"),
)
AFTER: tuple[Rule | Item, ...] = (
    Item(6, "green", "circle"),
    Item(7, "blue", "triangle"),
    Item(8, "green", "square"),
    Rule("roof", "square", "star"),
    Item(9, "green", "star"),
    Item(10, "green", "square"),
    Item(11, "green", "star"),
)
"""Item 8 waited for a triangle, so the star of item 9 does not pair with it."""


def tell(console: Console, matcher: Matcher, events: Sequence[Rule | Item]) -> None:
    """Process events and print the result of each."""
    for event in events:
        if isinstance(event, Rule):
            matcher.rule(event)
            console.print(f"  rule    {event.name}: {event.first}, then {event.second}   -> every subtask")
            continue
        matches = matcher.item(event)
        made = "".join(f"   MATCH {match.rule}: {match.first} and {match.second}" for match in matches)
        name = f"{event.color} {event.shape}"
        console.print(f"  item {event.number:>2} {name:<16} -> subtask {matcher.owner(event.color)}{made}")


def main() -> None:
    """Run with two subtasks, rescale to three while items wait, then replace a rule."""
    console = Console(highlight=False, soft_wrap=True)
    console.print("two subtasks")
    matcher = Matcher(2)
    tell(console, matcher, BEFORE)
    console.print("rescale: three subtasks; colors move with their waiting items, every subtask has the rules")
    tell(console, matcher.rescaled(3), AFTER)


if __name__ == "__main__":
    main()
