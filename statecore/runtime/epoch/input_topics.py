"""Checks that topics still have the next records, and are the topics that were read before.

Spark notices an offset that is out of range. It does not notice a topic that was deleted, made anew, and filled beyond
that offset: it would go on in the middle of other records. So each manifest has the ids of the topics that were read,
and an epoch is committed only if the brokers say that they are the same. A source that may lose records, by its option
``failOnDataLoss``, and one whose brokers have never answered here, goes on without their answer.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from statecore.errors import SourceError
from statecore.runtime.backlog.detection import topic_sources
from statecore.runtime.backlog.topics import TopicSource
from statecore.runtime.epoch.progress import QuerySources, replace_positions
from statecore.snapshot.manifest import Manifest, SourcePositions
from statecore.topics.losses import Loss, losses
from statecore.topics.positions import Partition, read_position, written_position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from statecore.topics.brokers import Brokers

log = logging.getLogger(__name__)

_MOST_NAMED = 10
# Pause after an optional answer failed: otherwise each epoch would wait for the brokers.
_UNASKED_S = 60.0
_HEARD_S = 3.0

T = TypeVar("T")


class InputTopics:
    """The topics that the epochs of one query read.

    Args:
        job: Name of the job.
        records: The input of the query.
        sources: Its sources.
        resumed: The epoch that the query resumes from; None without one.
        accepts_losses: Whether it may resume without records that topics no longer have.

    """

    def __init__(
        self, job: str, records: DataFrame, sources: QuerySources, resumed: Manifest | None, *, accepts_losses: bool
    ) -> None:
        by_name = topic_sources(records, sources.names)
        self._job = job
        self._sources = sources
        self._resumed = resumed
        self._accepts_losses = accepts_losses
        self._options: Mapping[str, TopicSource] = by_name
        self._brokers: dict[str, Brokers] = {}
        self._ids = {} if resumed is None else {each.name: _ids_of(each) for each in resumed.sources}
        self._ask_after_s: dict[str, float] = {}
        for name, source in by_name.items():
            brokers = source.brokers()
            if brokers is None:
                log.warning(
                    "source %s: whether its topics were made anew is not checked; install 'statecore[kafka]'", name
                )
            else:
                self._brokers[name] = brokers

    def check_earlier(self, directory: Path) -> bool:
        """Check that the topics have the records after the epoch that the query resumes from.

        A source whose option ``failOnDataLoss`` is false continues with the records that remain.

        Args:
            directory: Spark's checkpoint directory, where the query finds its positions.

        Returns:
            Whether anything is lost, or may be.

        Raises:
            SourceError: Records are lost, or the brokers do not say whether they are.

        """
        if self._resumed is None:
            return False
        sources = [each for each in self._resumed.sources if each.name in self._brokers and each.positions]
        lossy = [self._check_source(self._resumed, source, directory) for source in sources]
        return any(lossy)

    def note(self, read: Sequence[SourcePositions], epoch: int) -> tuple[SourcePositions, ...]:
        """Return positions with the ids of their topics, after the epoch has read up to them.

        Raises:
            SourceError: A topic was made anew since the epoch before, or the brokers do not say whether it was.

        """
        return tuple(self._noted(source, epoch) if source.name in self._options else source for source in read)

    def _check_source(self, resumed: Manifest, source: SourcePositions, directory: Path) -> bool:
        name, position = source.name, read_position(source.positions[0])
        lost = self._answer(name, lambda: self._losses(name, position))
        if not lost:
            return lost is None
        after = f"epoch {resumed.epoch} of lineage {resumed.lineage}"
        if self._options[name].fails_on_loss and not self._accepts_losses:
            raise SourceError(
                f"found records of source {name!r} gone that come after {after}: {_named(lost)}; {_counted(lost)}; "
                "expected the topics that were read before, with all unread records; bring the records back, or go on "
                f"without them: `statecore start {self._job} --accept-lost-records`, or the same in the DAG `start`"
            )
        log.warning("source %s goes on after %s without %s: %s", name, after, _counted(lost), _named(lost))
        gone = {each.partition for each in lost}
        kept = {each: offset for each, offset in position.items() if each not in gone}
        moved = {each.partition: each.goes_on for each in lost if each.goes_on is not None}
        replace_positions(directory, resumed.epoch, self._sources, name, written_position({**kept, **moved}))
        left = {each.partition.topic for each in lost}
        self._ids[name] = {topic: each for topic, each in self._ids[name].items() if topic not in left}
        return True

    def _noted(self, source: SourcePositions, epoch: int) -> SourcePositions:
        name = source.name
        read = set(json.loads(source.positions[0])) if source.positions else set()
        # Forget a topic that is no longer read: it may be another one when it returns.
        known = {topic: each for topic, each in self._ids.get(name, {}).items() if topic in read}
        topics = self._answer(name, lambda: self._brokers[name].topics(read)) if name in self._brokers else None
        if topics is not None:
            there = {topic: answer.id for topic, answer in topics.items()}
            anew = sorted(topic for topic in known if there.get(topic) != known[topic])
            if anew:
                raise SourceError(
                    f"found the topics {anew} of source {name!r} deleted or made anew before the end of epoch {epoch}; "
                    "expected the topics that the epochs before have read; the epoch is not committed; the next driver "
                    "says which records are gone"
                )
            known |= there
        self._ids[name] = known
        return msgspec.structs.replace(source, topics=dict(sorted(known.items())) or msgspec.UNSET)

    def _losses(self, name: str, position: Mapping[Partition, int]) -> list[Loss]:
        """Return the losses; ask again about a topic that a broker does not know yet."""

        def current() -> list[Loss]:
            return losses(self._brokers[name], position, self._ids[name], assigned=self._options[name].assigned)

        lost = current()
        if any(each.end is None for each in lost):
            time.sleep(_HEARD_S)
            lost = current()
        return lost

    def _answer(self, name: str, ask: Callable[[], T]) -> T | None:
        """Return the brokers' answer; None if they do not answer, and the source needs none.

        Raises:
            SourceError: They do not answer for 30 seconds, and have been asked about these topics before.

        """
        must = self._options[name].fails_on_loss and bool(self._ids.get(name))
        if not must and time.monotonic() < self._ask_after_s.get(name, 0.0):
            return None
        try:
            return _patiently(ask) if must else ask()
        except SourceError as error:
            if must:
                raise SourceError(
                    f"{error}; without their answer, source {name!r} may go on in a topic that was made anew"
                ) from error
            log.warning("whether the topics of source %s are those that were read is not checked: %s", name, error)
            self._ask_after_s[name] = time.monotonic() + _UNASKED_S
            return None


_patiently = Retrying(
    retry=retry_if_exception_type(SourceError),
    wait=wait_random_exponential(multiplier=0.2, max=3),
    stop=stop_after_delay(30),
    reraise=True,
)


def _ids_of(source: SourcePositions) -> dict[str, str]:
    """Return the ids of the topics that a position names."""
    read = {each.topic for position in source.positions for each in read_position(position)} if source.topic_ids else ()
    return {topic: each for topic, each in source.topic_ids.items() if topic in read}


def _named(lost: Sequence[Loss]) -> str:
    more = len(lost) - _MOST_NAMED
    return ", ".join(map(str, lost[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")


def _counted(lost: Sequence[Loss]) -> str:
    known = sum(each.records or 0 for each in lost)
    is_more = any(each.records is None for each in lost)
    if is_more:
        return f"{known:,} records are lost for certain, and others that nobody can count any more"
    return f"{known:,} records are lost"
