"""Topics that were made anew or have lost records are refused, unless a person accepts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tenacity import stop_after_attempt

from statecore.errors import SourceError
from statecore.runtime.backlog.topics import TopicSource
from statecore.runtime.epoch import input_topics
from statecore.runtime.epoch.input_topics import InputTopics
from statecore.runtime.epoch.progress import QuerySources
from statecore.snapshot.manifest import SourcePositions
from statecore.topics.positions import Partition
from tests.support.brokers import ScriptedBrokers
from tests.support.handmade import manifest

SOURCES = QuerySources(("rules", "orders"), ticks=False)


class Source(TopicSource):
    """A source whose brokers are scripted; it has none without them."""

    scripted: ScriptedBrokers | None

    def brokers(self) -> Any:
        return self.scripted


def after(*offsets: int, topics: dict[str, str] | None = None, of: str = "t") -> SourcePositions:
    position = json.dumps({of: {str(number): offset for number, offset in enumerate(offsets)}})
    known = {"t": "first"} if topics is None else topics
    return SourcePositions(name="orders", positions=(position,), topics=known or msgspec.UNSET)


@pytest.fixture
def brokers() -> ScriptedBrokers:
    return ScriptedBrokers({("t", 0): (0, 20), ("t", 1): (0, 10)})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text('v1\n{}\n5\n{"t":{"0":5,"1":7}}')
    return tmp_path


def checked(
    monkeypatch: pytest.MonkeyPatch,
    brokers: ScriptedBrokers | None,
    resumed: SourcePositions,
    *,
    fails: bool = True,
    accepts: bool = False,
) -> InputTopics:
    source = Source("broker:9092", committed=False, fails_on_loss=fails, assigned=False)
    source.scripted = brokers
    monkeypatch.setattr(input_topics, "topic_sources", lambda *_: {"orders": source})
    rules = SourcePositions(name="rules", positions=("5",))
    return InputTopics(
        "orders", cast(Any, None), SOURCES, manifest(epoch=3, sources=(rules, resumed)), accepts_losses=accepts
    )


def test_a_topic_that_has_all_goes_on(
    monkeypatch: pytest.MonkeyPatch, brokers: ScriptedBrokers, directory: Path
) -> None:
    made = checked(monkeypatch, brokers, after(5, 7))
    assert not made.check_earlier(directory)
    assert made.note([SourcePositions(name="rules", positions=("6",)), after(6, 7, topics={})], 4) == (
        SourcePositions(name="rules", positions=("6",)),
        after(6, 7),
    )


def test_lost_records_are_refused_with_what_is_wanted_and_there(
    monkeypatch: pytest.MonkeyPatch, brokers: ScriptedBrokers, directory: Path
) -> None:
    brokers.spans |= dict.fromkeys(brokers.spans, (9, 20))
    made = checked(monkeypatch, brokers, after(5, 7))
    with pytest.raises(SourceError) as refused:
        made.check_earlier(directory)
    told = str(refused.value)
    for part in (
        "found records of source 'orders' gone that come after epoch 3 of lineage",
        "t-0 wants offset 5 and has 9 to 20 (4 records have expired; it would go on at 9)",
        "t-1 wants offset 7 and has 9 to 20 (2 records have expired; it would go on at 9); 6 records are lost",
        "`statecore start orders --accept-lost-records`",
    ):
        assert part in told


@pytest.mark.parametrize("how", [{"accepts": True}, {"fails": False}])
def test_whoever_accepts_it_goes_on_with_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
    brokers: ScriptedBrokers,
    directory: Path,
    caplog: pytest.LogCaptureFixture,
    how: dict[str, bool],
) -> None:
    brokers.ids["t"] = "second"
    monkeypatch.setattr(input_topics, "_HEARD_S", 0)
    made = checked(monkeypatch, brokers, after(5, 7, 9), **how)
    assert made.check_earlier(directory)
    lines = (directory / "offsets" / "3").read_text().splitlines()
    assert lines == ["v1", "{}", "5", '{"t":{"0":0,"1":0}}']
    assert (
        "0 records are lost for certain, and others" in caplog.text and "t-2 wants offset 9 and is gone" in caplog.text
    )
    assert made.note([after(20, 10, topics={})], 4)[0].topic_ids == {"t": "second"}


def test_a_topic_that_is_made_anew_while_it_is_read_ends_the_epoch(
    monkeypatch: pytest.MonkeyPatch, brokers: ScriptedBrokers
) -> None:
    made = checked(monkeypatch, brokers, after(5, 7))
    brokers.ids["t"] = "second"
    with pytest.raises(SourceError, match=r"\['t'\] of source 'orders' deleted or made anew before the end of epoch 4"):
        made.note([after(6, 7, topics={})], 4)
    del brokers.ids["t"]
    with pytest.raises(SourceError, match="the epoch is not committed"):
        made.note([after(6, 7, topics={})], 4)


def test_an_epoch_of_known_topics_waits_for_the_brokers_answer_and_is_not_committed_without(
    monkeypatch: pytest.MonkeyPatch, brokers: ScriptedBrokers, directory: Path
) -> None:
    monkeypatch.setattr(input_topics._patiently, "stop", stop_after_attempt(2))
    made = checked(monkeypatch, brokers, after(5, 7))
    brokers.is_away = True
    for ask in (lambda: made.check_earlier(directory), lambda: made.note([after(6, 7, topics={})], 4)):
        with pytest.raises(SourceError, match="without their answer, source 'orders' may go on in a topic that was"):
            ask()
    brokers.is_away = False
    assert made.note([after(6, 7, topics={})], 4)[0].topic_ids == {"t": "first"}


@pytest.mark.parametrize(("fails", "known"), [(False, {"t": "first"}), (True, {})])
def test_brokers_that_need_not_answer_hold_up_one_epoch_not_each(
    monkeypatch: pytest.MonkeyPatch,
    brokers: ScriptedBrokers,
    caplog: pytest.LogCaptureFixture,
    fails: bool,
    known: dict[str, str],
) -> None:
    made = checked(monkeypatch, brokers, after(5, 7, topics=known), fails=fails)
    brokers.is_away = True
    for epoch in (4, 5):
        assert made.note([after(6, 7, topics={})], epoch)[0].topic_ids == known
    assert len(caplog.records) == 1
    brokers.is_away = False
    monkeypatch.setattr("statecore.runtime.epoch.input_topics.time.monotonic", lambda: float("inf"))
    assert made.note([after(6, 7, topics={})], 7)[0].topic_ids == {"t": "first"}


def test_a_topic_that_comes_back_after_it_was_left_out_is_a_new_one(
    monkeypatch: pytest.MonkeyPatch, brokers: ScriptedBrokers
) -> None:
    brokers.spans[Partition("u", 0)], brokers.ids["u"] = (0, 9), "other"
    made = checked(monkeypatch, brokers, after(5, 7))
    assert made.note([after(3, of="u", topics={})], 4)[0].topic_ids == {"u": "other"}
    brokers.ids["t"] = "second"
    assert made.note([after(6, 7, topics={})], 5)[0].topic_ids == {"t": "second"}


def test_a_topic_that_a_broker_has_not_heard_of_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, brokers: ScriptedBrokers, directory: Path
) -> None:
    made = checked(monkeypatch, brokers, after(5, 7))
    there = brokers.ids.pop("t")
    monkeypatch.setattr("statecore.runtime.epoch.input_topics.time.sleep", lambda _: brokers.ids.update(t=there))
    assert not made.check_earlier(directory)


def test_without_the_client_the_ids_of_the_manifest_stay(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    made = checked(monkeypatch, None, after(5, 7))
    made.check_earlier(directory)
    assert made.note([after(6, 7, topics={})], 4)[0].topic_ids == {"t": "first"}
