"""Resizing a cluster: one Protocol, one file per kind."""

from statecore.cluster.base import Cluster, ClusterDefinition, ClusterSize
from statecore.cluster.factory import cluster_for
from statecore.cluster.standalone import StandaloneCluster, StandaloneSettings
from statecore.cluster.standalone_master import StandaloneMaster

__all__ = [
    "Cluster",
    "ClusterDefinition",
    "ClusterSize",
    "StandaloneCluster",
    "StandaloneMaster",
    "StandaloneSettings",
    "cluster_for",
]
