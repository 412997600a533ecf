"""Spark standalone workers as instances of an EC2 Auto Scaling group.

The group's launch template starts a Spark worker on each instance. A worker is ready once it registers with the
master. All state is in the group, so any process can continue a resize.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import boto3
import msgspec
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from statecore.cluster.base import ClusterSize
from statecore.cluster.ec2_errors import ec2_error, launch_remedy
from statecore.cluster.master_page import read_master_page
from statecore.errors import ClusterError

# The supervisor calls every second. AWS would throttle that many requests, and instances change more slowly.
_DESCRIBE_INTERVAL_S = 5.0
# The supervisor tries again after a second anyway, and nothing else waits for this call.
_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S, _ATTEMPTS = 3, 10, 2
_FAILED = ("Failed", "Cancelled")


class Ec2Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a cluster in an Auto Scaling group; boto3 takes credentials from its usual places.

    Attributes:
        group: Name of the Auto Scaling group. Its limits apply to the cluster; it must have no scaling policy.
        region: AWS region of the group.
        master_web_url: Address of the Spark master's web UI, ``http://host:port``.
        endpoint_url: Address of the Auto Scaling service; None for the region's own.
        ready_timeout_s: Longest time from an instance in service to its worker's registration with the master.

    """

    group: Annotated[str, msgspec.Meta(min_length=1)]
    region: Annotated[str, msgspec.Meta(min_length=1)]
    master_web_url: Annotated[str, msgspec.Meta(pattern=r"^http://[^/]+$")]
    endpoint_url: Annotated[str, msgspec.Meta(pattern=r"^https?://[^/]+")] | None = None
    ready_timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 300.0


class _Instance(msgspec.Struct, frozen=True, rename="pascal"):
    lifecycle_state: str


class _Group(msgspec.Struct, frozen=True, rename="pascal"):
    min_size: int
    max_size: int
    desired_capacity: int
    instances: list[_Instance] = []

    @property
    def in_service(self) -> int:
        return sum(each.lifecycle_state == "InService" for each in self.instances)


class _Activity(msgspec.Struct, frozen=True, rename="pascal"):
    activity_id: str
    status_code: str
    status_message: str = ""


class Ec2Cluster:
    """Resizes an Auto Scaling group and reports why a resize does not complete."""

    is_local = False

    def __init__(self, name: str, settings: Ec2Settings) -> None:
        self._name = name
        self._settings = settings
        self._client: Any = None
        self._seen: tuple[float, _Group] | None = None
        self._short_since_s: float | None = None
        self._past: _Activity | None = None

    def size(self) -> ClusterSize:
        """Return the number of instances, of workers that the master reports as alive, and the group's limits."""
        ready = read_master_page(self._settings.master_web_url).ready_workers
        group = self._group()
        return ClusterSize(len(group.instances), ready, smallest=group.min_size, largest=group.max_size)

    def resize(self, workers: int) -> None:
        """Set the group's desired capacity if it differs, then check launches and registrations.

        Raises:
            ClusterError: The size is outside the group's limits, AWS refuses it, an instance cannot be launched, or a
                worker does not register although its instance is in service.

        """
        group = self._group()
        if not group.min_size <= workers <= group.max_size:
            raise ClusterError(
                f"{self._what}: found a request for {workers} workers; expected {group.min_size} to {group.max_size}, "
                "the group's limits; choose another size, or change its MinSize or MaxSize"
            )
        if group.desired_capacity != workers:
            self._seen = self._short_since_s = None
            # Remember it, to ignore a launch that failed for the previous size.
            self._past = self._newest_activity()
            self._call(
                "set_desired_capacity",
                AutoScalingGroupName=self._settings.group,
                DesiredCapacity=workers,
                HonorCooldown=False,
            )
        elif group.in_service < workers:
            self._short_since_s = None
            self._check_launches(group, workers)
        else:
            self._check_registered(workers)

    def close(self) -> None:
        """Close the connections; the instances stay."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def _what(self) -> str:
        return f"cluster {self._name!r}, Auto Scaling group {self._settings.group!r}"

    def _group(self) -> _Group:
        if self._seen is not None and time.monotonic() - self._seen[0] < _DESCRIBE_INTERVAL_S:
            return self._seen[1]
        answer = self._call("describe_auto_scaling_groups", AutoScalingGroupNames=[self._settings.group])
        groups = msgspec.convert(answer["AutoScalingGroups"], list[_Group])
        if not groups:
            raise ClusterError(
                f"{self._what}: found no such group in {self._settings.region}; expected an existing group; create it, "
                "or correct group and region in the cluster's settings"
            )
        self._seen = time.monotonic(), groups[0]
        return groups[0]

    def _check_launches(self, group: _Group, workers: int) -> None:
        """Raise ClusterError if instances are missing and the newest launch failed."""
        newest = self._newest_activity()
        if newest is None or newest.status_code not in _FAILED:
            return
        if self._past is None or newest.activity_id != self._past.activity_id:
            raise ClusterError(
                f"{self._what}: found {group.in_service} of {workers} instances in service, and the newest launch "
                f"{newest.status_code.lower()}: {newest.status_message}; expected the launch to succeed; "
                f"{launch_remedy(newest.status_message)}"
            )

    def _newest_activity(self) -> _Activity | None:
        answer = self._call("describe_scaling_activities", AutoScalingGroupName=self._settings.group, MaxRecords=1)
        return next(iter(msgspec.convert(answer["Activities"], list[_Activity])), None)

    def _check_registered(self, workers: int) -> None:
        """Raise ClusterError if workers do not register in time although their instances are in service."""
        ready = read_master_page(self._settings.master_web_url).ready_workers
        if ready >= workers:
            self._short_since_s = None
            return
        now_s = time.monotonic()
        if self._short_since_s is None:
            self._short_since_s = now_s
        if now_s - self._short_since_s >= self._settings.ready_timeout_s:
            raise ClusterError(
                f"{self._what}: found {ready} of {workers} workers registered with the master, "
                f"{self._settings.ready_timeout_s:g} s after their instances were in service; expected all; check the "
                "worker's log on an instance, the launch template's user data, and the security group between worker "
                "and master"
            )

    def _call(self, action: str, **arguments: Any) -> dict[str, Any]:
        try:
            if self._client is None:
                self._client = boto3.session.Session().client(
                    "autoscaling",
                    region_name=self._settings.region,
                    endpoint_url=self._settings.endpoint_url,
                    config=Config(
                        connect_timeout=_CONNECT_TIMEOUT_S,
                        read_timeout=_READ_TIMEOUT_S,
                        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                    ),
                )
            answer: dict[str, Any] = getattr(self._client, action)(**arguments)
            return answer
        except (ClientError, BotoCoreError) as error:
            raise ec2_error(error, self._what) from error
