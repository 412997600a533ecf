"""Makes the Cluster object of a cluster definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from statecore.cluster.base import Cluster, ClusterDefinition
from statecore.cluster.standalone import StandaloneCluster, StandaloneSettings
from statecore.errors import ClusterError
from statecore.extras import require


def _standalone(name: str, settings: Mapping[str, Any]) -> Cluster:
    return StandaloneCluster(name, msgspec.convert(settings, StandaloneSettings))


def _ec2(name: str, settings: Mapping[str, Any]) -> Cluster:
    require("boto3", extra="s3")
    from statecore.cluster.ec2 import Ec2Cluster, Ec2Settings

    return Ec2Cluster(name, msgspec.convert(settings, Ec2Settings))


_KINDS: dict[str, Callable[[str, Mapping[str, Any]], Cluster]] = {"standalone": _standalone, "ec2": _ec2}


def cluster_for(definition: ClusterDefinition) -> Cluster:
    """Return the cluster of a definition; ClusterError for an unknown kind or settings that do not fit it."""
    make = _KINDS.get(definition.kind)
    if make is None:
        raise ClusterError(
            f"found cluster {definition.name!r} of kind {definition.kind!r}; expected one of: "
            f"{', '.join(sorted(_KINDS))}; register the cluster again with one of these kinds"
        )
    try:
        return make(definition.name, definition.settings)
    except msgspec.ValidationError as error:
        raise ClusterError(
            f"cluster {definition.name!r}: found settings that do not fit the kind {definition.kind!r}: {error}; "
            "expected the settings of that kind; register the cluster again with correct settings"
        ) from error
