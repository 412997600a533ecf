"""The control plane's database: tables, records and queries."""

from msgspec import UNSET

from statecore.catalog.catalog import Catalog
from statecore.catalog.clock import Clock, SystemClock
from statecore.catalog.records import (
    ClusterRecord,
    EpochRecord,
    GenerationRecord,
    JobRecord,
    LeaseRecord,
    Liveness,
    RequestRecord,
    RescaleRunRecord,
    SavepointRecord,
    StepTimes,
)

__all__ = [
    "UNSET",
    "Catalog",
    "Clock",
    "ClusterRecord",
    "EpochRecord",
    "GenerationRecord",
    "JobRecord",
    "LeaseRecord",
    "Liveness",
    "RequestRecord",
    "RescaleRunRecord",
    "SavepointRecord",
    "StepTimes",
    "SystemClock",
]
