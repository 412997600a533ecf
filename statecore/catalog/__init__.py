"""The control plane's database: tables, records and queries."""

from msgspec import UNSET

from statecore.catalog.catalog import Catalog
from statecore.catalog.clock import Clock, SystemClock
from statecore.catalog.records import (
    BacklogRecord,
    ClusterRecord,
    EpochRecord,
    GenerationRecord,
    JobBefore,
    JobFigures,
    JobRecord,
    KeyGroupsRecord,
    LeaseRecord,
    Liveness,
    MetricPoint,
    OperatorFigures,
    RequestRecord,
    RescaleMethod,
    RescaleRunRecord,
    SavepointRecord,
    SourceBacklog,
    StepTimes,
    SubtasksRecord,
    over_all,
)

__all__ = [
    "UNSET",
    "BacklogRecord",
    "Catalog",
    "Clock",
    "ClusterRecord",
    "EpochRecord",
    "GenerationRecord",
    "JobBefore",
    "JobFigures",
    "JobRecord",
    "KeyGroupsRecord",
    "LeaseRecord",
    "Liveness",
    "MetricPoint",
    "OperatorFigures",
    "RequestRecord",
    "RescaleMethod",
    "RescaleRunRecord",
    "SavepointRecord",
    "SourceBacklog",
    "StepTimes",
    "SubtasksRecord",
    "SystemClock",
    "over_all",
]
