"""What Auto Scaling and boto3 report, as errors of this library; the one place where that is decided."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

from statecore.errors import ClusterError
from statecore.storage.s3_errors import NO_ANSWER, NO_CREDENTIALS, SET_CREDENTIALS, code_of
from statecore.storage.urls import without_credentials

_GRANT = (
    "grant these credentials autoscaling:DescribeAutoScalingGroups and autoscaling:DescribeScalingActivities, and "
    "autoscaling:SetDesiredCapacity on the group"
)
_CORRECT = f"correct the credentials; {SET_CREDENTIALS}"
_RENEW = f"renew the credentials; {SET_CREDENTIALS}"
_REMEDIES = {
    "AccessDenied": _GRANT,
    "AccessDeniedException": _GRANT,
    "UnauthorizedOperation": _GRANT,
    "InvalidClientTokenId": _CORRECT,
    "AuthFailure": _CORRECT,
    "SignatureDoesNotMatch": _CORRECT,
    "ExpiredToken": _RENEW,
    "RequestExpired": _RENEW,
    "ScalingActivityInProgress": "wait until the group has ended what it is doing; it is tried again",
    "ResourceContention": "wait until another change of the group has ended; it is tried again",
    "Throttling": "make fewer calls with this account; it is tried again",
}
# What the failed launch of an instance says, by words of its message.
_LAUNCH_REMEDIES = {
    "limit": "raise the account's quota for these instances (Service Quotas), or choose a smaller size",
    "quota": "raise the account's quota for these instances (Service Quotas), or choose a smaller size",
    "sufficient": "wait, or let the group launch other instance types or in other Availability Zones",
    "authorized": "give the group's service-linked role what its launch template needs",
}


def ec2_error(error: ClientError | BotoCoreError, what: str) -> ClusterError:
    """Return the error for what went wrong with ``what``; no credentials are in its message."""
    if isinstance(error, NO_CREDENTIALS):
        # Their own words may hold what a credential helper printed.
        return ClusterError(
            f"{what}: found no usable credentials ({type(error).__name__}); expected credentials for Auto Scaling; "
            f"{SET_CREDENTIALS}"
        )
    if isinstance(error, NO_ANSWER):
        return ClusterError(
            f"{what}: found no answer: {without_credentials(str(error))}; expected Auto Scaling at its endpoint; check "
            "the network, endpoint_url and region; it is tried again"
        )
    remedy = _REMEDIES.get(code_of(error), "see what Auto Scaling says, and correct the group or the settings")
    return ClusterError(f"{what}: found {error}; expected Auto Scaling to do it; {remedy}")


def launch_remedy(message: str) -> str:
    """Return what to do about an instance that could not be launched."""
    for word, remedy in _LAUNCH_REMEDIES.items():
        if word in message.lower():
            return remedy
    return "see the group's activity history, and correct its launch template"
