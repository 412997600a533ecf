"""The control plane's database: the catalog, its parts and their records."""

from statecore.catalog.alerts import Alerts
from statecore.catalog.catalog import Catalog
from statecore.catalog.clock import Clock, SystemClock
from statecore.catalog.clusters import Clusters
from statecore.catalog.epochs import Epochs
from statecore.catalog.figures import (
    ArrivalsRecord,
    BacklogRecord,
    EpochRecord,
    HeavyKeyFigure,
    HeavyKeyGroupFigure,
    JobFigures,
    KeyGroupsRecord,
    OperatorFigures,
    RollUpRecord,
    SourceBacklog,
    SourceTopics,
    StateFigures,
    SubtasksRecord,
    TopicsRecord,
    over_all,
    some_wait,
)
from statecore.catalog.generations import Generations
from statecore.catalog.job_files import JobFiles
from statecore.catalog.jobs import Jobs
from statecore.catalog.leases import Leases
from statecore.catalog.overviews import HISTORY, RUNS, JobRows, Overview, Overviews
from statecore.catalog.policies import Diagnosed, Policies
from statecore.catalog.records import (
    AuditRecord,
    ClaimedSavepoint,
    ClusterRecord,
    DecisionRecord,
    DecisionState,
    GenerationRecord,
    GenerationState,
    JobBefore,
    JobFileRecord,
    JobRecord,
    LeaseRecord,
    Liveness,
    PolicyRecord,
    PolicyState,
    RequestRecord,
    RescaleMethod,
    RescaleRunRecord,
    RescaleState,
    SavepointRecord,
    StepTimes,
    SupervisorRecord,
    TakenBackRecord,
    ToldAlertRecord,
)
from statecore.catalog.requests import Requests
from statecore.catalog.rollups import MINUTE_MS, QUARTER_MS
from statecore.catalog.runs import Runs
from statecore.catalog.savepoints import SavepointRecords
from statecore.catalog.supervisors import Supervisors

__all__ = [
    "HISTORY",
    "MINUTE_MS",
    "QUARTER_MS",
    "RUNS",
    "Alerts",
    "ArrivalsRecord",
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
    "JobRows",
    "Jobs",
    "KeyGroupsRecord",
    "LeaseRecord",
    "Leases",
    "Liveness",
    "OperatorFigures",
    "Overview",
    "Overviews",
    "Policies",
    "PolicyRecord",
    "PolicyState",
    "RequestRecord",
    "Requests",
    "RescaleMethod",
    "RescaleRunRecord",
    "RescaleState",
    "RollUpRecord",
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
    "some_wait",
]
