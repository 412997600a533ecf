"""The rules on Spark: a rescale in between, and a rule that changes while items wait."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from examples import shape_rules
from examples.shape_rules import AFTER, BEFORE, Item, Match, Matcher, Rule
from tests.support.bench import Bench
from tests.support.waiting import wait


def test_the_job_finds_the_pairs_that_harnesses_find(spark: Any, bench: Bench) -> None:
    folders = {name: bench.input.parent / name for name in ("items", "rules")}
    for folder in folders.values():
        folder.mkdir()
    bench.register(
        artifact=Path(shape_rules.__file__), settings={name: str(folder) for name, folder in folders.items()}
    )
    matcher, expected = Matcher(2), Counter[Any]()

    def feed(number: int, event: Rule | Item) -> None:
        """Feed an event, and wait for its epoch: of one epoch, the rules come first."""
        row = event._asdict()
        if isinstance(event, Rule):
            matcher.rule(event)
            row["version"] = number
        else:
            expected.update(map(tuple, matcher.item(event)))
        folder = folders["rules" if isinstance(event, Rule) else "items"]
        made = folder / f".{number}"
        made.write_text(json.dumps(row))
        made.rename(folder / f"{number}.json")
        wait(lambda: bench.rows_done() == number, "the event's epoch")

    with bench.running(2):
        for number, event in enumerate(BEFORE, 1):
            feed(number, event)
    with bench.running(3):
        for number, event in enumerate(AFTER, len(BEFORE) + 1):
            feed(number, event)
    assert bench.published("pairs", Match._fields) == expected
    assert expected.total() == 5
