"""What S3 and boto3 report, as errors of this library; the one place where that is decided."""

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
from statecore.storage.urls import without_credentials


class TornAnswerError(BotoCoreError):
    """An answer began and broke off."""

    fmt = "The answer broke off: {error}"


# Answers to HEAD have no body that could hold a code: theirs is the HTTP status.
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

SET_CREDENTIALS = "set them as for any boto3 program: environment, profile or instance role"
_GRANT = (
    "grant these credentials s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket there; without "
    "s3:ListBucket a missing file looks like this, too"
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
    "NotImplemented": "use a storage that knows conditional puts (If-None-Match), as S3 does",
    "PreconditionFailed": "read the file again: somebody replaced it meanwhile",
}


def code_of(error: BaseException) -> str:
    """Return the code of an answer of S3, such as ``NoSuchKey``; of its status when it has none; else ``""``."""
    return error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else ""


def storage_error(error: ClientError | BotoCoreError, place: str) -> StorageError:
    """Return the error for what went wrong at ``place``; no credentials are in its message."""
    if code_of(error) in _NO_FILE:
        return MissingFileError(
            f"found no file {place}; expected it, because a manifest names it; "
            "restore the file from a backup or resume from another savepoint"
        )
    if isinstance(error, NO_CREDENTIALS):
        # Their own words may hold what a credential helper printed.
        return StorageError(
            f"found no usable credentials ({type(error).__name__}) for {place}; expected credentials for S3; "
            f"{SET_CREDENTIALS}"
        )
    if isinstance(error, NO_ANSWER):
        return StorageError(
            f"found no answer for {place}: {without_credentials(str(error))}; expected S3 at its endpoint; "
            "check the network, the endpoint (AWS_ENDPOINT_URL) and the region, and try again"
        )
    remedy = _REMEDIES.get(code_of(error), "see what the storage says, and try again")
    return StorageError(f"found {without_credentials(str(error))} at {place}; expected S3 to do it; {remedy}")
