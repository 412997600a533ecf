"""A job from topic to topic is stopped while its topic fills up. The supervisor measures what waits meanwhile; the
policy scales the job out by its lag, and back, and Airflow carries that out.

The job runs on a master of its own: the cluster is that of the first story.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stack.kafka import CONNECTOR
from statecore.catalog import DecisionRecord
from tests.chaos.kafka.truth import Numbered
from tests.e2e.world import SPARK_CONF, World
from tests.support.jobs import topics
from tests.support.kafka import KafkaBroker, kafka, topic
from tests.support.s3 import new_store

pytestmark = pytest.mark.nightly

__all__ = ["kafka", "topic"]

NUMBERED = "numbered"
KEYS, OUTAGE, A_SECOND = 40, 5_000, 100
POLICY = {
    "min_parallelism": 2,
    "max_parallelism": 4,
    "catch_up_s": 10,
    "scale_out_after_s": 2,
    "scale_in_after_s": 5,
    "cooldown_s": 1,
}


class Stream:
    """The job, fed, watched and judged."""

    def __init__(self, world: World, kafka: KafkaBroker, incoming: str, store: str) -> None:
        self.world, self.catalog, self._kafka, self._incoming = world, world.catalog, kafka, incoming
        self._outgoing = kafka.create(f"{incoming}-numbered", 3)
        self._numbered = Numbered()
        # Subtasks that sleep need no core each; how long they do decides what they can do, however busy the machine is.
        settings = {"servers": kafka.servers, "from": incoming, "to": self._outgoing, "seconds": "0.01", "most": "300"}
        self.catalog.jobs.register(
            NUMBERED,
            artifact=topics.__file__,
            store=store,
            master_url="local[4]",
            conf={**SPARK_CONF, "spark.jars": CONNECTOR},
            settings=settings,
            parallelism=2,
            max_parallelism=16,
        )

    def feed(self, rows: int) -> None:
        first = self._numbered.fed
        records = [(f"k{n * 7 % KEYS}", n) for n in range(first, first + rows)]
        self._kafka.produce(self._incoming, [(k, str(n)) for k, n in records], headers=[("origin", b"shop")])
        self._numbered.feed(records)

    def feed_through_the_outage(self) -> None:
        """Feed as a source does: no size takes in time what comes all at once, so the policy would keep the largest."""
        pause = threading.Event()
        for _ in range(OUTAGE // A_SECOND):
            self.feed(A_SECOND)
            pause.wait(1.0)

    def finding(self) -> str:
        policy = self.catalog.policies.find(NUMBERED)
        return (policy.finding if policy else None) or ""

    def waiting(self) -> int | None:
        """Return how many records wait, as the brokers told the driver or, while none runs, the supervisor."""
        backlog = self.catalog.overviews.figures(NUMBERED).backlog
        return None if backlog is None else backlog.sources[0].records

    def wait_taken(self) -> None:
        def left() -> int:
            epochs = self.catalog.epochs.of(NUMBERED, limit=1)
            return self._numbered.fed - (epochs[-1].rows_total if epochs else 0)

        self.world.wait(lambda: left() == 0, lambda: f"{left():,} records to be taken", 180)

    def settle(self) -> None:
        """Wait until all that was fed is put out, and compare it with the truth, in the order of each key."""
        self.wait_taken()
        self._numbered.find(self._kafka.read(self._outgoing))
        assert not self._numbered.verdict().differences


@pytest.fixture
def stream(world: World, kafka: KafkaBroker, topic: str, s3_endpoint: str) -> Iterator[Stream]:
    yield Stream(world, kafka, topic, new_store(s3_endpoint))
    world.catalog.policies.set(NUMBERED, POLICY, enabled=False)
    # A decision that was made before is carried out, and would start the job again.
    world.wait(lambda: not unfinished(world), lambda: f"{unfinished(world)} to be carried out", 120)
    world.command("stop", NUMBERED)


def unfinished(world: World) -> list[DecisionRecord]:
    return [each for each in world.catalog.policies.decisions(NUMBERED) if each.state in ("open", "triggered")]


def test_a_policy_scales_a_job_whose_topic_filled_up_while_it_was_stopped_out_and_back(
    world: World, stream: Stream
) -> None:
    world.command("start", NUMBERED)
    # Of different sizes, so that the cost of a record shows.
    for rows in (10, 40, 20, 80, 30, 60):
        stream.feed(rows)
        stream.wait_taken()
    world.catalog.policies.set(NUMBERED, POLICY)
    world.command("stop", NUMBERED)
    stream.feed_through_the_outage()
    world.wait(lambda: stream.waiting() == OUTAGE, lambda: f"all that waits, of which {stream.waiting()} is known")
    world.wait(lambda: "should not run" in stream.finding(), lambda: f"a look, beside {stream.finding()!r}")
    # However much waits.
    assert not world.catalog.policies.decisions(NUMBERED)
    world.command("start", NUMBERED)

    def out_and_back() -> list[DecisionRecord]:
        """Return the first decision, and the first one that goes back, once both are carried out.

        How fast the machine is decides in how many steps the job grows and shrinks.
        """
        made = world.catalog.policies.decisions(NUMBERED)[::-1]
        back = [each for each in made if each.to_parallelism < each.from_parallelism]
        found = [*made[:1], *back[:1]]
        return found if back and not {each.state for each in found} & {"open", "triggered"} else []

    def expected() -> str:
        return f"a way back to be carried out, beside {unfinished(world)}; {stream.finding()}"

    out, back = world.wait(out_and_back, expected, 300)
    assert (out.state, back.state) == ("done", "done")
    assert (out.from_parallelism, out.method) == (2, "live") and out.to_parallelism > 2, out
    assert out.figures["waiting"] > 300 and out.figures["lag_ms"] > 3_000, out
    assert f"{out.figures['waiting']:,.0f} rows wait" in out.reason, out
    assert {each.reason for each in world.catalog.runs.of(NUMBERED)} >= {out.reason, back.reason}
    stream.settle()
    world.say(f"exact, and in order: {out.reason}")
