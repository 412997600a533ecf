"""Every error that statecore raises on purpose.

Each message has three parts: what was found, what was expected, what to do.

```text
    StatecoreError
    ├── ConfigurationError            a setting, argument or job file is wrong
    │   ├── MissingExtraError         a package of one of statecore's extras is missing
    │   ├── InvalidParallelismError   parallelism or max parallelism out of bounds
    │   ├── UnsupportedTypeError      a Spark type that cannot be a key or a state value
    │   ├── JobDefinitionError        build(job) describes an impossible job
    │   └── QueryDefinitionError      build(spark, settings) does not return a query
    ├── SourceError                   a source cannot be read as the job declares it
    ├── FunctionError                 a user's function failed; its own error is the cause
    ├── StateError                    wrong use of state from a function
    │   ├── NoCurrentKeyError         keyed state used where there is no key
    │   ├── StateConflictError        one name, two kinds, types or modes
    │   ├── StateTypeError            a value does not fit the declared type
    │   │   └── OutputTypeError       an output does not fit the declared columns
    │   └── StateMigrationError       restored state does not fit what the program declares
    ├── RedistributionError           state handles that cannot be given to new subtasks
    │   └── MaxParallelismError       max parallelism differs; needs the rewrite method
    ├── StorageError                  files
    │   ├── MissingFileError          a referenced file does not exist
    │   ├── CorruptFileError          size or checksum differs from the manifest
    │   ├── ForeignFileError          a savepoint's folder holds a file that the savepoint does not name
    │   ├── AlreadyExistsError        put-if-absent lost
    │   ├── SavepointInUseError       a job or a reader still needs the savepoint
    │   └── UnsafePathError           a path leaves its root
    ├── ManifestError                 a manifest is unreadable, of an unknown version, or invalid
    ├── CommitError                   an epoch may not be committed
    │   ├── CommitConflictError       another driver committed this epoch first
    │   └── CommitForbiddenError      the job is stopping
    ├── SinkError                     a sink cannot take the rows of a committed epoch
    ├── CatalogError                  control plane
    │   ├── CatalogSchemaError        the tables belong to another release, or are missing
    │   ├── UnknownJobError           no such job
    │   ├── UnknownClusterError       no such cluster
    │   ├── UnknownRecordError        no such generation, request or rescale run
    │   ├── GenerationClaimedError    the job has a live driver
    │   ├── OtherRequestError         the id belongs to another request
    │   ├── LeaseHeldError            another run is changing this job
    │   └── NoSupervisorError         no supervisor runs to start a job that this change stops
    ├── ClusterError                  a cluster cannot be resized or does not become ready
    │   └── ClusterBusyError          it does not answer now, or is being changed; a later attempt may succeed
    ├── CheckpointError               a checkpoint of a query of Spark's own
    │   ├── CheckpointRefusedError    it holds, or asks for, something that is not covered
    │   ├── CheckpointDamagedError    its files are missing, damaged or contradict each other
    │   └── NotProvenError            a copy that cannot be proven right; it is removed
    ├── UnhealthyJobError             a job that was changed will not become healthy
    ├── RequestFailedError            a driver could not carry out a request
    └── StepFailedError               a step of a change failed; it may be retryable
```
"""

from __future__ import annotations

import reprlib

_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = 200


def shortened(value: object) -> str:
    """Return the ``repr`` of a value, short enough for a message."""
    return _SHORT.repr(value)


class StatecoreError(Exception):
    """Root of the tree. Catch it to catch every error that statecore raises on purpose."""


class ConfigurationError(StatecoreError, ValueError):
    """A setting, argument or job file is wrong."""


class MissingExtraError(ConfigurationError):
    """A package of one of statecore's extras is missing."""


class InvalidParallelismError(ConfigurationError):
    """Parallelism or max parallelism out of bounds."""


class UnsupportedTypeError(ConfigurationError):
    """A Spark type that cannot be a key or a state value."""


class JobDefinitionError(ConfigurationError):
    """``build(job)`` describes an impossible job."""


class QueryDefinitionError(ConfigurationError):
    """``build(spark, settings)`` of a query file does not return a query of Spark's own."""


class SourceError(StatecoreError):
    """A source cannot be read as the job declares it: a file is damaged, or has another schema."""


class FunctionError(StatecoreError):
    """A user's function failed; the message says where and on what, and the function's error is the cause."""


class StateError(StatecoreError):
    """Wrong use of state from a function."""


class NoCurrentKeyError(StateError):
    """Keyed state was used where there is no current key."""


class StateConflictError(StateError):
    """One state name was registered with two kinds, types or modes."""


class StateTypeError(StateError, TypeError):
    """A value does not fit the declared type of its state."""


class OutputTypeError(StateTypeError):
    """An output does not fit the columns of its output schema or tag."""


class StateMigrationError(StateError):
    """Restored state has another kind, type, key or owner than the program declares, and cannot be converted."""


class RedistributionError(StatecoreError, ValueError):
    """State handles cannot be given to the new subtasks."""


class MaxParallelismError(RedistributionError):
    """Max parallelism differs from that of the stored state. Only the method ``rewrite`` changes it."""


class StorageError(StatecoreError):
    """A file operation failed."""


class MissingFileError(StorageError):
    """A referenced file does not exist."""


class CorruptFileError(StorageError):
    """The size or checksum of a file differs from its manifest."""


class ForeignFileError(StorageError):
    """A savepoint's folder holds a file that the savepoint does not name."""


class AlreadyExistsError(StorageError):
    """A put-if-absent failed because the file exists."""


class SavepointInUseError(StorageError):
    """A job or a reader still needs the savepoint that was to be dropped."""


class UnsafePathError(StorageError):
    """A path leaves its root."""


class ManifestError(StatecoreError):
    """A manifest is unreadable, of an unknown version, or invalid."""


class CommitError(StatecoreError):
    """An epoch may not be committed."""


class CommitConflictError(CommitError):
    """Another driver committed this epoch first."""


class CommitForbiddenError(CommitError):
    """The job is stopping and accepts no further commit."""


class SinkError(StatecoreError):
    """A sink cannot take the rows of a committed epoch. They stay staged until the restarted job publishes them."""


class CatalogError(StatecoreError):
    """The catalog refused an operation, or could not be reached."""


class CatalogSchemaError(CatalogError):
    """The catalog's tables are missing or belong to another release."""


class UnknownJobError(CatalogError, KeyError):
    """No job of that name is registered."""

    __str__ = Exception.__str__


class UnknownClusterError(CatalogError, KeyError):
    """No cluster of that name is registered."""

    __str__ = Exception.__str__


class UnknownRecordError(CatalogError, KeyError):
    """No such generation, request or rescale run."""

    __str__ = Exception.__str__


class GenerationClaimedError(CatalogError):
    """The job already has a live driver."""


class OtherRequestError(CatalogError):
    """The id belongs to another request."""


class LeaseHeldError(CatalogError):
    """Another run is changing this job."""


class NoSupervisorError(CatalogError):
    """No supervisor runs to start a job that this change stops."""


class ClusterError(StatecoreError):
    """A cluster cannot be resized or does not become ready."""


class ClusterBusyError(ClusterError):
    """A cluster does not answer now, or refuses changes for a while; a later attempt may succeed."""


class CheckpointError(StatecoreError):
    """A checkpoint of a query of Spark's own cannot be read, copied or rescaled."""


class CheckpointRefusedError(CheckpointError):
    """A checkpoint holds, or a command asks for, something that is not covered; the message names the remedy."""


class CheckpointDamagedError(CheckpointError):
    """Files of a checkpoint are missing, damaged or contradict each other."""


class NotProvenError(CheckpointError):
    """A copy of a checkpoint could not be proven right."""


class UnhealthyJobError(StatecoreError):
    """A job that was changed will not become healthy: its drivers fail, or it was changed again."""


class RequestFailedError(StatecoreError):
    """A driver reported that it could not carry out a request."""


class StepFailedError(StatecoreError):
    """A step of a change failed; ``is_retryable`` says whether a retry may succeed."""

    def __init__(self, message: str, *, is_retryable: bool = False) -> None:
        super().__init__(message)
        self.is_retryable = is_retryable
