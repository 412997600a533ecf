"""Makes the Cluster object of a cluster definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from statecore.cluster.base import Cluster, ClusterDefinition
from statecore.cluster.standalone import StandaloneCluster, StandaloneSettings
from statecore.errors import ClusterError
from statecore.extras import require


class _Kind(NamedTuple):
    """The classes of a kind: its settings, and the cluster, made from a name and settings."""

    settings: type[msgspec.Struct]
    cluster: Callable[[str, Any], Cluster]


def _standalone() -> _Kind:
    return _Kind(StandaloneSettings, StandaloneCluster)


def _ec2() -> _Kind:
    require("boto3", extra="s3")
    from statecore.cluster.ec2 import Ec2Cluster, Ec2Settings

    return _Kind(Ec2Settings, Ec2Cluster)


_KINDS: dict[str, Callable[[], _Kind]] = {"standalone": _standalone, "ec2": _ec2}


def cluster_for(definition: ClusterDefinition) -> Cluster:
    """Return the cluster of a definition; ClusterError for an unknown kind or settings that do not fit it."""
    kind = _kind(definition.name, definition.kind)
    settings = _converted(definition.name, definition.kind, definition.settings, strict=True)
    return kind.cluster(definition.name, settings)


def cluster_settings(name: str, kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a cluster as its kind types them, from texts of a shell.

    Raises:
        ClusterError: The kind is unknown, or the settings do not fit it.

    """
    typed: dict[str, Any] = msgspec.to_builtins(_converted(name, kind, settings, strict=False))
    return typed


def _kind(name: str, kind: str) -> _Kind:
    made = _KINDS.get(kind)
    if made is None:
        raise ClusterError(
            f"found cluster {name!r} of kind {kind!r}; expected one of: {', '.join(sorted(_KINDS))}; register the "
            "cluster again with one of these kinds"
        )
    return made()


def _converted(name: str, kind: str, settings: Mapping[str, Any], *, strict: bool) -> msgspec.Struct:
    try:
        return msgspec.convert(settings, _kind(name, kind).settings, strict=strict)
    except msgspec.ValidationError as error:
        raise ClusterError(
            f"cluster {name!r}: found settings that do not fit the kind {kind!r}: {error}; expected the settings of "
            "that kind; register the cluster again with correct settings"
        ) from error
