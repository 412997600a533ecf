"""A cluster in an Auto Scaling group, on a real API server (moto)."""

from __future__ import annotations

import json
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from statecore.catalog import ClusterRecord
from statecore.cluster import ClusterSize, cluster_for
from statecore.cluster import ec2 as ec2_module
from statecore.cluster.ec2 import Ec2Cluster, Ec2Settings
from statecore.errors import ClusterBusyError, ClusterError

REGION = "us-east-1"


class Master:
    """Serves a Spark master's status page."""

    def __init__(self) -> None:
        self.states: list[str] = []
        master = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                workers = [{"id": str(n), "state": state} for n, state in enumerate(master.states)]
                page = json.dumps({"url": "spark://m:7077", "status": "ALIVE", "workers": workers}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def master() -> Iterator[Master]:
    master = Master()
    yield master
    master.close()


@pytest.fixture
def group(s3_endpoint: str) -> str:
    """An Auto Scaling group of one to four instances, at size one; the server also serves S3."""
    client: Any = boto3.client("autoscaling", region_name=REGION, endpoint_url=s3_endpoint)
    name = f"workers-{uuid.uuid4().hex}"
    client.create_launch_configuration(LaunchConfigurationName=name, ImageId="ami-12c6146b", InstanceType="t2.medium")
    client.create_auto_scaling_group(
        AutoScalingGroupName=name,
        LaunchConfigurationName=name,
        MinSize=1,
        MaxSize=4,
        DesiredCapacity=1,
        AvailabilityZones=[f"{REGION}a"],
    )
    return name


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ec2_module, "_DESCRIBE_INTERVAL_S", 0.0)


@pytest.fixture
def cluster(group: str, master: Master, s3_endpoint: str) -> Iterator[Ec2Cluster]:
    settings = {"group": group, "region": REGION, "master_web_url": master.url, "endpoint_url": s3_endpoint}
    cluster = cluster_for(ClusterRecord("local", "ec2", settings, 1, 0, None, 0))
    assert isinstance(cluster, Ec2Cluster)
    yield cluster
    cluster.close()


def test_a_cluster_grows_and_shrinks_and_workers_count_when_the_master_counts_on_them(
    cluster: Ec2Cluster, master: Master, group: str, s3_endpoint: str
) -> None:
    master.states = ["ALIVE"]
    limits = {"smallest": 1, "largest": 4}
    assert cluster.size() == ClusterSize(running=1, ready=1, **limits)
    cluster.resize(3)
    assert cluster.size() == ClusterSize(running=3, ready=1, **limits)
    master.states = ["ALIVE", "DEAD", "ALIVE", "ALIVE"]
    assert cluster.size() == ClusterSize(running=3, ready=3, **limits)
    # Another process, or this one after a restart, continues the resize.
    other = Ec2Cluster("local", Ec2Settings(group, REGION, master.url, s3_endpoint))
    other.resize(2)
    assert cluster.size().running == 2
    other.close()


def test_a_group_is_asked_only_every_few_seconds(
    cluster: Ec2Cluster, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ec2_module, "_DESCRIBE_INTERVAL_S", 60.0)
    asked: list[str] = []
    call = cluster._call

    def recording(action: str, **rest: Any) -> Any:
        asked.append(action)
        return call(action, **rest)

    monkeypatch.setattr(cluster, "_call", recording)
    master.states = ["ALIVE"]
    for _ in range(5):
        cluster.resize(1)
        cluster.size()
    assert asked == ["describe_auto_scaling_groups"]
    cluster.resize(2)
    assert cluster.size().running == 2


@pytest.mark.parametrize("workers", [0, 5])
def test_a_size_beyond_the_groups_limits_is_refused_and_nothing_changes(cluster: Ec2Cluster, workers: int) -> None:
    with pytest.raises(
        ClusterError, match=f"found a request for {workers} workers; expected 1 to 4.*MinSize or MaxSize"
    ):
        cluster.resize(workers)
    assert cluster.size().running == 1


def test_a_group_that_is_not_there_is_named(master: Master, s3_endpoint: str) -> None:
    cluster = Ec2Cluster("local", Ec2Settings("gone", REGION, master.url, s3_endpoint))
    with pytest.raises(ClusterError, match=r"group 'gone': found no such group in us-east-1; .* correct"):
        cluster.resize(1)


def test_without_permission_the_error_says_what_to_grant(
    group: str, master: Master, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    iam: Any = boto3.client("iam", region_name=REGION, endpoint_url=s3_endpoint)
    iam.create_user(UserName=group)
    key = iam.create_access_key(UserName=group)["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    cluster = Ec2Cluster("local", Ec2Settings(group, REGION, master.url, s3_endpoint))
    check_permissions(s3_endpoint, after="0")
    try:
        with pytest.raises(
            ClusterError, match="grant these credentials autoscaling:DescribeAutoScalingGroups"
        ) as error:
            cluster.resize(2)
    finally:
        check_permissions(s3_endpoint, after="inf")
    assert group in str(error.value) and key["SecretAccessKey"] not in str(error.value)


def check_permissions(endpoint: str, *, after: str) -> None:
    """Make the server check permissions after a number of requests."""
    headers = {"Content-Type": "text/plain"}
    request = urllib.request.Request(f"{endpoint}/moto-api/reset-auth", after.encode(), headers, method="POST")
    urllib.request.urlopen(request, timeout=60).close()


def described(group: str, *, in_service: int, desired: int) -> dict[str, Any]:
    instance = {
        "InstanceId": "i-1",
        "AvailabilityZone": "us-east-1a",
        "LifecycleState": "InService",
        "HealthStatus": "Healthy",
        "ProtectedFromScaleIn": False,
    }
    return {
        "AutoScalingGroups": [
            {
                "AutoScalingGroupName": group,
                "MinSize": 1,
                "MaxSize": 4,
                "DesiredCapacity": desired,
                "DefaultCooldown": 300,
                "AvailabilityZones": ["us-east-1a"],
                "HealthCheckType": "EC2",
                "CreatedTime": 0,
                "Instances": [instance] * in_service,
            }
        ]
    }


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance bucket "
            "that the specified instance type belongs to. Launching EC2 instance failed.",
            "raise the account's quota",
        ),
        (
            "We currently do not have sufficient m5.xlarge capacity in the Availability Zone you requested "
            "(us-east-1a). Launching EC2 instance failed.",
            "other instance types or in other Availability Zones",
        ),
        ("The image id '[ami-1]' does not exist. Launching EC2 instance failed.", "correct its launch template"),
    ],
)
def test_why_an_instance_cannot_be_launched_is_said_with_a_remedy(
    cluster: Ec2Cluster, group: str, said: str, remedy: str
) -> None:
    cluster.resize(1)
    activity = {
        "ActivityId": "1",
        "AutoScalingGroupName": group,
        "Cause": "a user asked for it",
        "StartTime": 0,
        "StatusCode": "Failed",
        "StatusMessage": said,
    }
    # moto launches everything that is requested.
    with Stubber(cluster._client) as stub:
        stub.add_response("describe_auto_scaling_groups", described(group, in_service=1, desired=3))
        stub.add_response("describe_scaling_activities", {"Activities": [activity]})
        with pytest.raises(ClusterError) as error:
            cluster.resize(3)
        assert "found 1 of 3 instances in service" in str(error.value)
        assert said in str(error.value) and remedy in str(error.value)
        # Only the newest activity counts: the launch was retried.
        trying = {**activity, "ActivityId": "2", "StatusCode": "InProgress"}
        stub.add_response("describe_auto_scaling_groups", described(group, in_service=1, desired=3))
        stub.add_response("describe_scaling_activities", {"Activities": [trying]})
        cluster.resize(3)
        # A failure for another size does not count.
        stub.add_response("describe_auto_scaling_groups", described(group, in_service=1, desired=3))
        stub.add_response("describe_scaling_activities", {"Activities": [activity]})
        stub.add_response("set_desired_capacity", {})
        cluster.resize(2)
        for number in ("1", "3"):
            stub.add_response("describe_auto_scaling_groups", described(group, in_service=1, desired=2))
            stub.add_response("describe_scaling_activities", {"Activities": [{**activity, "ActivityId": number}]})
        cluster.resize(2)
        with pytest.raises(ClusterError, match="found 1 of 2 instances in service"):
            cluster.resize(2)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("AccessDenied", "grant these credentials autoscaling:DescribeAutoScalingGroups"),
        ("ScalingActivityInProgress", "wait for the group's current activity"),
        ("ExpiredToken", "renew the credentials"),
    ],
)
def test_what_auto_scaling_refuses_is_said_with_a_remedy(
    cluster: Ec2Cluster, group: str, code: str, remedy: str
) -> None:
    cluster.resize(1)
    with Stubber(cluster._client) as stub:
        stub.add_response("describe_auto_scaling_groups", described(group, in_service=1, desired=1))
        stub.add_response("describe_scaling_activities", {"Activities": []})
        stub.add_client_error("set_desired_capacity", code, "no")
        with pytest.raises(ClusterError, match=remedy):
            cluster.resize(2)


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("Throttling", True),
        ("RequestLimitExceeded", True),
        ("ScalingActivityInProgress", True),
        ("ResourceContention", True),
        ("ServiceUnavailable", True),
        ("AccessDenied", False),
        ("ExpiredToken", False),
    ],
)
def test_what_passes_by_itself_is_told_apart(cluster: Ec2Cluster, code: str, passes: bool) -> None:
    with Stubber(_client(cluster)) as stub:
        stub.add_client_error("describe_auto_scaling_groups", code, "no")
        with pytest.raises(ClusterError) as error:
            cluster.resize(2)
    assert isinstance(error.value, ClusterBusyError) == passes


def _client(cluster: Ec2Cluster) -> Any:
    """Return the client that a cluster has made for its first call."""
    cluster.resize(1)
    return cluster._client


def test_an_instance_whose_worker_does_not_register_is_said_after_a_time(
    cluster: Ec2Cluster, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("statecore.cluster.ec2.time.monotonic", lambda: now_s[0])
    master.states = ["ALIVE"]
    cluster.resize(2)
    cluster.resize(2)
    now_s[0] += 299
    cluster.resize(2)
    now_s[0] += 1
    with pytest.raises(ClusterError, match=r"found 1 of 2 workers registered .* 300 s after"):
        cluster.resize(2)
    master.states = ["ALIVE", "ALIVE"]
    cluster.resize(2)


def test_no_answer_and_no_credentials_are_told_apart(
    group: str, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = Ec2Cluster("local", Ec2Settings(group, REGION, master.url, "http://127.0.0.1:1"))
    monkeypatch.setattr(ec2_module, "_ATTEMPTS", 1)
    with pytest.raises(ClusterBusyError, match=r"found no answer.*check the network, endpoint_url and region"):
        nobody.resize(1)
    behind_a_password = Ec2Cluster("local", Ec2Settings(group, REGION, master.url, "http://me:secret@127.0.0.1:1"))
    with pytest.raises(ClusterError, match="found no answer") as silent:
        behind_a_password.resize(1)
    assert "secret" not in str(silent.value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    stranger = Ec2Cluster("local", Ec2Settings(group, REGION, master.url))
    with pytest.raises(ClusterError, match="no usable credentials"):
        stranger.resize(1)


@pytest.mark.parametrize(
    ("wrong", "name"), [({}, "master_web_url"), ({"master_web_url": "http://h:1", "endpoint_url": "h"}, "endpoint_url")]
)
def test_settings_that_do_not_fit_are_refused(wrong: dict[str, str], name: str) -> None:
    with pytest.raises(ClusterError, match=name):
        cluster_for(ClusterRecord("c", "ec2", {"group": "g", "region": "r", **wrong}, 1, 0, None, 0))
