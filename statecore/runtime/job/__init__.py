"""The job builder, with which a job file's ``build(job)`` describes a job.

::

    source ─► key_by ─► process(uid) ─► sink
                           │  └─► side_output ─► sink
    source ─► broadcast ───┘ connect         every output is a stream again: key_by, union, broadcast, process, sink
    source ─► key_by ──────┘
"""

from statecore.runtime.job.builder import Job
from statecore.runtime.job.joined import CoGroupedStreams, IntervalJoin, IntervalJoined, WindowedCoGroup
from statecore.runtime.job.loading import described, fetch_artifact, load_job
from statecore.runtime.job.plans import Input, OperatorPlan, Origin, Output, SinkBinding, Source
from statecore.runtime.job.streams import (
    BroadcastStream,
    ConnectedStream,
    KeyedStream,
    OutputStream,
    ProcessedStream,
    Stream,
)

__all__ = [
    "BroadcastStream",
    "CoGroupedStreams",
    "ConnectedStream",
    "Input",
    "IntervalJoin",
    "IntervalJoined",
    "Job",
    "KeyedStream",
    "OperatorPlan",
    "Origin",
    "Output",
    "OutputStream",
    "ProcessedStream",
    "SinkBinding",
    "Source",
    "Stream",
    "WindowedCoGroup",
    "described",
    "fetch_artifact",
    "load_job",
]
