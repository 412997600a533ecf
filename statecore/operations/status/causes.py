"""What kind of cause an error of a driver has, and what to do about it; pure.

The catalog has an error as text, its kind first (see ``statecore.blame``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from statecore import errors
from statecore.catalog import GenerationRecord


@dataclass(frozen=True, slots=True)
class Cause:
    """A kind of cause, and what removes it."""

    name: str
    todo: str


STORAGE = Cause(
    "storage",
    "look whether the job's store is there, has space left, and lets the driver write; nothing has to be changed in "
    "the job",
)
DAMAGE = Cause(
    "damage",
    "look whether the store is mounted; then bring the named file back from a backup of it, or start from a savepoint "
    "that does not need it, `statecore start … --from`",
)
SOURCE = Cause(
    "source",
    "look whether the source is there and its records fit the schema that the job declares; mend the source, or the "
    "declaration in the job file",
)
SINK = Cause(
    "sink",
    "look whether the sink is there, has space left and takes rows; the rows of a committed epoch are kept, and "
    "published once it does",
)
CODE = Cause("code", "correct the job file and register it")
MEMORY = Cause(
    "memory",
    "look in `dmesg` of its host which process was ended for want of memory, and give the driver or the workers more",
)
CLUSTER = Cause("cluster", "look whether the Spark master answers, and whether its workers have room for the job")
OTHER = Cause("other", "do what the error says")

_KIND = re.compile(r"(?:^|: )(?P<kind>[A-Z]\w*(?:Error|Exception)): ")
_IN_JOB_FILE = re.compile(r"[^\s:]+\.py:\d+(?: in \S+)?: ")
# The first that fits. An error that may have several causes says itself what to do.
_BY_KIND = (
    (errors.SourceError, SOURCE),
    (errors.SinkError, SINK),
    (errors.MissingExtraError, OTHER),
    (errors.FunctionError, CODE),
    (errors.StateError, CODE),
    (errors.RedistributionError, CODE),
    (errors.ConfigurationError, CODE),
    (errors.ClusterError, CLUSTER),
    (errors.MissingFileError, DAMAGE),
    (errors.CorruptFileError, DAMAGE),
    (errors.CheckpointDamagedError, DAMAGE),
    (errors.StorageError, STORAGE),
    (errors.StatecoreError, OTHER),
)
# Words of the operating system, of Spark, Kafka and S3, in errors of no kind of ours.
_BY_WORDS = (
    (r"OutOfMemoryError|MemoryError|SIGKILL|ran out of memory|Cannot allocate memory", MEMORY),
    (r"All masters are unresponsive|Could not connect to spark://|ExecutorLostFailure", CLUSTER),
    (r"No space left on device|Disk quota exceeded|Read-only file system|NoSuchBucket|AccessDenied", STORAGE),
    (r"PATH_NOT_FOUND|UnknownTopicOrPartition|KafkaException|No resolvable bootstrap urls", SOURCE),
)


def cause_of(failed: GenerationRecord) -> Cause:
    """Return the kind of cause that ended a driver."""
    if failed.was_lost:
        return CLUSTER
    error = failed.error or ""
    for match in _KIND.finditer(error):
        kind = getattr(errors, match["kind"], None)
        for base, cause in _BY_KIND:
            if isinstance(kind, type) and issubclass(kind, base):
                return cause
    # A line of the job file may have met any of these.
    found = next((cause for words, cause in _BY_WORDS if re.search(words, error)), None)
    if found is not None:
        return found
    return CODE if _IN_JOB_FILE.match(error) else OTHER
