"""Translates errors of Auto Scaling and boto3 into ClusterError, with a remedy for each."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

from statecore.errors import ClusterBusyError, ClusterError
from statecore.redaction import redacted
from statecore.storage.s3_errors import NO_ANSWER, NO_CREDENTIALS, SET_CREDENTIALS, code_of

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
    "ScalingActivityInProgress": "wait for the group's current activity; statecore retries",
    "ResourceContention": "wait for the other change of the group; statecore retries",
    "Throttling": "make fewer API calls with this account; statecore retries",
}
# They pass; botocore has retried those of throttling for some seconds.
_BUSY = {
    "InternalFailure",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "ResourceContention",
    "ScalingActivityInProgress",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
# Remedies for a failed launch, by a word of its message.
_LAUNCH_REMEDIES = {
    "limit": "raise the account's quota for these instances (Service Quotas), or choose a smaller size",
    "quota": "raise the account's quota for these instances (Service Quotas), or choose a smaller size",
    "sufficient": "wait, or let the group launch other instance types or in other Availability Zones",
    "authorized": "give the group's service-linked role what its launch template needs",
}


def ec2_error(error: ClientError | BotoCoreError, what: str) -> ClusterError:
    """Translate an error about ``what``; the message contains no credentials."""
    if isinstance(error, NO_CREDENTIALS):
        # Leave out the original message: it may quote a credential helper's output.
        return ClusterError(
            f"{what}: found no usable credentials ({type(error).__name__}); expected credentials for Auto Scaling; "
            f"{SET_CREDENTIALS}"
        )
    if isinstance(error, NO_ANSWER):
        return ClusterBusyError(
            f"{what}: found no answer: {redacted(str(error))}; expected Auto Scaling at its endpoint; check "
            "the network, endpoint_url and region; statecore retries"
        )
    code = code_of(error)
    remedy = _REMEDIES.get(code, "correct the group or the settings as the message says")
    kind = ClusterBusyError if code in _BUSY else ClusterError
    return kind(f"{what}: found {error}; expected the request to succeed; {remedy}")


def launch_remedy(message: str) -> str:
    """Return the remedy for a failed launch of an instance."""
    for word, remedy in _LAUNCH_REMEDIES.items():
        if word in message.lower():
            return remedy
    return "see the group's activity history, and correct its launch template"
