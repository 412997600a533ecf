"""Windows over keyed streams, with the semantics of Flink's window operator."""

from statecore.windows.assigners import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from statecore.windows.evictors import CountEvictor
from statecore.windows.function import ContentsDescriptor, ProcessWindowFunction, WindowContext, WindowFunction
from statecore.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    PurgingTrigger,
    Trigger,
)

__all__ = [
    "ContentsDescriptor",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "DynamicEventTimeSessionWindows",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "GlobalWindows",
    "ProcessWindowFunction",
    "PurgingTrigger",
    "SlidingEventTimeWindows",
    "Trigger",
    "TumblingEventTimeWindows",
    "WindowAssigner",
    "WindowContext",
    "WindowFunction",
]
