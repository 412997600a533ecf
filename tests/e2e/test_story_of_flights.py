"""A job that no larger cluster would help: Airflow's page says why, and the policy leaves it alone.

The job of the other story rests meanwhile, because the worker has cores for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.flights import FLIGHTS, HOT_CARRIER, PARALLELISM, Flights
from tests.e2e.world import JOB, World
from tests.support.s3 import new_store

pytestmark = pytest.mark.nightly

POLICY = {
    "min_parallelism": PARALLELISM,
    "max_parallelism": 2 * PARALLELISM,
    "catch_up_s": 10,
    # Half of what is usual: the first epochs of a busy machine may mislead a look or two.
    "scale_out_after_s": 30,
    "scale_in_after_s": 5,
    "cooldown_s": 1,
}
NO_HELP = "; a larger cluster would not help"
HOT_KEY = re.compile(
    rf"; the key {HOT_CARRIER} has \d\d% of the work, and one subtask does all of it: split the key in the job, with a "
    rf"random part that a second operator merges, or filter it{NO_HELP}"
)
SINK_BOUND = re.compile(
    rf"; publishing takes \d\d% of an epoch, and the sink flown takes \d+% of that: look at the sink: .+{NO_HELP}"
)


@pytest.fixture
def flights(world: World, s3_endpoint: str) -> Iterator[Flights]:
    """The job, fed with a backlog that has a hot key, and started."""
    flights = Flights(world, new_store(s3_endpoint))
    flights.feed(hot=True)
    world.command("start", FLIGHTS)
    # The driver begins meanwhile, and waits for the cores.
    world.command("stop", JOB)
    yield flights
    world.command("stop", FLIGHTS)
    world.command("start", JOB)


def test_the_page_names_a_hot_key_and_then_a_slow_sink_and_no_rescale_is_made(
    world: World, flights: Flights, page: Page
) -> None:
    page.goto(f"{world.url}/statecore/job?name={FLIGHTS}")
    world.catalog.policies.set(FLIGHTS, POLICY)

    def expect_sentence(sentence: re.Pattern[str], *, hot: bool) -> None:
        def is_found() -> bool:
            flights.feed(hot=hot)
            assert not world.catalog.policies.decisions(FLIGHTS), flights.finding
            return sentence.search(flights.finding) is not None

        world.wait(is_found, lambda: f"other words than {flights.finding!r}", 180)
        world.say(f"found: {flights.finding}")
        expect(page.locator("main")).to_contain_text(sentence)

    expect_sentence(HOT_KEY, hot=True)
    flights.slow_down_sink(True)
    expect_sentence(SINK_BOUND, hot=False)

    world.catalog.policies.set(FLIGHTS, POLICY, enabled=False)
    flights.slow_down_sink(False)
    flights.settle()
    assert not world.catalog.policies.decisions(FLIGHTS) and not world.catalog.runs.of(FLIGHTS)
    assert {epoch.parallelism for epoch in world.catalog.epochs.of(FLIGHTS)} == {PARALLELISM}
    assert len(world.catalog.generations.of(FLIGHTS)) == 1
