"""Resizes Spark clusters: one Protocol, one module per kind of cluster."""

from statecore.cluster.base import Cluster, ClusterSize
from statecore.cluster.factory import cluster_for, cluster_settings
from statecore.cluster.standalone import StandaloneCluster, StandaloneSettings
from statecore.cluster.standalone_master import StandaloneMaster

__all__ = [
    "Cluster",
    "ClusterSize",
    "StandaloneCluster",
    "StandaloneMaster",
    "StandaloneSettings",
    "cluster_for",
    "cluster_settings",
]
