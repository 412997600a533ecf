"""Values and arithmetic without I/O: types, key groups, descriptors, handles, redistribution, the TTL rule."""

from statecore.model.descriptors import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
    StateTtlConfig,
    StateVisibility,
    UpdateType,
    ValueStateDescriptor,
)
from statecore.model.handles import (
    DistributionMode,
    KeyedStateHandle,
    OperatorStateHandle,
    StatePartitions,
)
from statecore.model.key_groups import (
    KeyGroupRange,
    default_max_parallelism,
    key_group_range,
    subtask_for_key_group,
)
from statecore.model.key_hash import canonical_key, key_encoder, key_group_for
from statecore.model.parsing import parse_row, parse_type
from statecore.model.redistribution import redistribute_keyed_state, redistribute_operator_state
from statecore.model.row_classes import row_ddl
from statecore.model.types import (
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StringType,
    StructType,
    arrow_schema,
    require_key_type,
)

__all__ = [
    "AggregateFunction",
    "AggregatingStateDescriptor",
    "ArrayType",
    "AtomicType",
    "DataType",
    "DecimalType",
    "DistributionMode",
    "Field",
    "KeyGroupRange",
    "KeyedStateHandle",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "MapType",
    "OperatorStateHandle",
    "OutputTag",
    "ReducingStateDescriptor",
    "StateDescriptor",
    "StateKind",
    "StatePartitions",
    "StateTtlConfig",
    "StateVisibility",
    "StringType",
    "StructType",
    "UpdateType",
    "ValueStateDescriptor",
    "arrow_schema",
    "canonical_key",
    "default_max_parallelism",
    "key_encoder",
    "key_group_for",
    "key_group_range",
    "parse_row",
    "parse_type",
    "redistribute_keyed_state",
    "redistribute_operator_state",
    "require_key_type",
    "row_ddl",
    "subtask_for_key_group",
]
