"""Translates errors of S3 and boto3 into StorageError, with a remedy for each."""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    LoginError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from statecore.errors import MissingFileError, StorageError
from statecore.redaction import redacted


class TornAnswerError(BotoCoreError):
    """The connection broke in the middle of a response."""

    fmt = "The response was cut off: {error}"


# A response to HEAD has no body, so its code is the HTTP status.
_NO_FILE = ("NoSuchKey", "404")
NO_CREDENTIALS = (
    CredentialRetrievalError,
    LoginError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
NO_ANSWER = (ConnectionError, HTTPClientError, TornAnswerError)

SET_CREDENTIALS = "set them where boto3 looks: environment, profile or instance role"
_GRANT = (
    "grant these credentials s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket there; without "
    "s3:ListBucket a missing file gives this error as well"
)
_REMEDIES = {
    "NoSuchBucket": "create the bucket or correct the URL",
    "AccessDenied": _GRANT,
    "403": _GRANT,
    "InvalidAccessKeyId": f"correct the credentials; {SET_CREDENTIALS}",
    "SignatureDoesNotMatch": f"correct the credentials; {SET_CREDENTIALS}",
    "ExpiredToken": f"renew the credentials; {SET_CREDENTIALS}",
    "InvalidToken": f"renew the credentials; {SET_CREDENTIALS}",
    "RequestTimeTooSkewed": "correct the clock of this machine",
    "NotImplemented": "use storage that supports conditional puts (If-None-Match), as S3 does",
    "PreconditionFailed": "read the file again: another process replaced it in the meantime",
}


def code_of(error: BaseException) -> str:
    """Return S3's error code, such as ``NoSuchKey`` or an HTTP status; ``""`` for other errors."""
    return error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else ""


def storage_error(error: ClientError | BotoCoreError, place: str) -> StorageError:
    """Translate an error at ``place``; the message contains no credentials."""
    if code_of(error) in _NO_FILE:
        return MissingFileError(
            f"found no file {place}; expected a file that a manifest names; "
            "restore the file from a backup or resume from another savepoint"
        )
    if isinstance(error, NO_CREDENTIALS):
        # Leave out the original message: it may quote a credential helper's output.
        return StorageError(
            f"found no usable credentials ({type(error).__name__}) for {place}; expected credentials for S3; "
            f"{SET_CREDENTIALS}"
        )
    if isinstance(error, NO_ANSWER):
        return StorageError(
            f"found no response for {place}: {redacted(str(error))}; expected S3 at its endpoint; "
            "check the network, the endpoint (AWS_ENDPOINT_URL) and the region, then retry"
        )
    remedy = _REMEDIES.get(code_of(error), "act on the message, then retry")
    return StorageError(f"found {redacted(str(error))} at {place}; expected success; {remedy}")
