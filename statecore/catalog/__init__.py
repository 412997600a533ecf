"""The control plane's database: the catalog, its parts and their records."""

from statecore.catalog.alerts import Alerts
from statecore.catalog.catalog import Catalog
from statecore.catalog.clock import Clock, SystemClock
from statecore.catalog.clusters import Clusters
from statecore.catalog.epochs import Epochs
from statecore.catalog.generations import Generations
from statecore.catalog.job_files import JobFiles
from statecore.catalog.jobs import Jobs
from statecore.catalog.leases import Leases
from statecore.catalog.policies import Diagnosed, Policies
from statecore.catalog.records import (
    AuditRecord,
    BacklogRecord,
    ClaimedSavepoint,
    ClusterRecord,
    DecisionRecord,
    DecisionState,
    EpochRecord,
    GenerationRecord,
    GenerationState,
    HeavyKeyFigure,
    HeavyKeyGroupFigure,
    JobBefore,
    JobFigures,
    JobFileRecord,
    JobRecord,
    KeyGroupsRecord,
    LeaseRecord,
    Liveness,
    OperatorFigures,
    PolicyRecord,
    PolicyState,
    RequestRecord,
    RescaleMethod,
    RescaleRunRecord,
    RescaleState,
    SavepointRecord,
    SourceBacklog,
    SourceTopics,
    StateFigures,
    StepTimes,
    SubtasksRecord,
    SupervisorRecord,
    TakenBackRecord,
    ToldAlertRecord,
    TopicsRecord,
    over_all,
)
from statecore.catalog.requests import Requests
from statecore.catalog.runs import Runs
from statecore.catalog.savepoints import SavepointRecords
from statecore.catalog.supervisors import Supervisors

__all__ = [
    "Alerts",
    "AuditRecord",
    "BacklogRecord",
    "Catalog",
    "ClaimedSavepoint",
    "Clock",
    "ClusterRecord",
    "Clusters",
    "DecisionRecord",
    "DecisionState",
    "Diagnosed",
    "EpochRecord",
    "Epochs",
    "GenerationRecord",
    "GenerationState",
    "Generations",
    "HeavyKeyFigure",
    "HeavyKeyGroupFigure",
    "JobBefore",
    "JobFigures",
    "JobFileRecord",
    "JobFiles",
    "JobRecord",
    "Jobs",
    "KeyGroupsRecord",
    "LeaseRecord",
    "Leases",
    "Liveness",
    "OperatorFigures",
    "Policies",
    "PolicyRecord",
    "PolicyState",
    "RequestRecord",
    "Requests",
    "RescaleMethod",
    "RescaleRunRecord",
    "RescaleState",
    "Runs",
    "SavepointRecord",
    "SavepointRecords",
    "SourceBacklog",
    "SourceTopics",
    "StateFigures",
    "StepTimes",
    "SubtasksRecord",
    "SupervisorRecord",
    "Supervisors",
    "SystemClock",
    "TakenBackRecord",
    "ToldAlertRecord",
    "TopicsRecord",
    "over_all",
]
