"""The process's boto3 client, and the requests that boto3 alone does not retry fully."""

from __future__ import annotations

import io
import os
import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, FlexibleChecksumError, HTTPClientError, IncompleteReadError
from tenacity import (
    RetryCallState,
    Retrying,
    retry,
    retry_if_exception,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    wait_random_exponential,
)

from statecore.errors import StorageError
from statecore.storage.s3_errors import TornAnswerError, code_of, storage_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ErrorTypeDef

# Waits double from 50 ms up to 20 s: the caller gets an error after about half a minute.
_ATTEMPTS = 10
_STOP, _WAIT = stop_after_attempt(_ATTEMPTS), wait_random_exponential(multiplier=0.05, max=20)
_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 5, 30
_CONNECTIONS = 16

# What S3 says of single keys when it is busy.
_BUSY = frozenset({"InternalError", "OperationAborted", "ServiceUnavailable", "SlowDown"})

# Raised while reading the body of a response.
_TORN = (HTTPClientError, IncompleteReadError, FlexibleChecksumError)


_making = threading.Lock()


def client() -> S3Client:
    """Return this process's client; only retries and timeouts differ from boto3's defaults."""
    # Without the lock, each of several threads would make a first client: a tenth of a second of processor time.
    with _making:
        return _client_of(os.getpid())


def _free_the_lock() -> None:
    """Replace the lock after a fork: a thread that held it does not exist in the child."""
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=_free_the_lock)


@lru_cache(maxsize=1)
def _client_of(pid: int) -> S3Client:
    # One client per process: a forked process must not share its parent's connections.
    session = botocore.session.get_session()
    config = Config(
        retries={"mode": "standard", "total_max_attempts": session.get_config_variable("max_attempts") or _ATTEMPTS},
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        max_pool_connections=_CONNECTIONS,
        tcp_keepalive=True,
    )
    return boto3.session.Session(botocore_session=session).client("s3", config=config)


@retry(retry=retry_if_exception_type(TornAnswerError), stop=_STOP, wait=_WAIT, reraise=True)
def get(bucket: str, key: str, **conditions: Any) -> bytes:
    """Return an object's bytes; boto3 retries until a response begins, this function until it is complete.

    Args:
        bucket: Name of the bucket.
        key: Key of the object.
        conditions: Further arguments of ``get_object``.

    """
    answer = client().get_object(Bucket=bucket, Key=key, **conditions)
    try:
        return answer["Body"].read()
    except _TORN as error:
        raise TornAnswerError(error=error) from error


@retry(
    retry=retry_if_exception(lambda error: code_of(error) == "ConditionalRequestConflict"),
    stop=_STOP,
    wait=_WAIT,
    reraise=True,
)
def put_new(bucket: str, key: str, data: bytes | Path, metadata: dict[str, str]) -> None:
    """Put data, or a local file, unless the object exists; S3 requests a retry when two conditional puts collide."""
    with data.open("rb") if isinstance(data, Path) else io.BytesIO(data) as body:
        client().put_object(Bucket=bucket, Key=key, Body=body, Metadata=metadata, IfNoneMatch="*")


def delete_objects(bucket: str, keys: Sequence[str]) -> list[ErrorTypeDef]:
    """Delete up to a thousand objects; return the errors of those that stay.

    boto3 repeats a request that fails as a whole; this function repeats it for single keys that S3 is too busy for.
    """
    left = list(keys)

    def attempt() -> list[ErrorTypeDef]:
        answer = client().delete_objects(
            Bucket=bucket, Delete={"Objects": [{"Key": key} for key in left], "Quiet": True}
        )
        errors = answer.get("Errors", [])
        left[:] = [error["Key"] for error in errors if "Key" in error]
        return errors

    def is_busy(errors: list[ErrorTypeDef]) -> bool:
        return bool(errors) and all(error.get("Code") in _BUSY for error in errors)

    def last(state: RetryCallState) -> list[ErrorTypeDef]:
        assert state.outcome is not None
        return state.outcome.result()  # type: ignore[no-any-return]

    return Retrying(retry=retry_if_result(is_busy), stop=_STOP, wait=_WAIT, retry_error_callback=last)(attempt)


@lru_cache
def require_bucket(bucket: str) -> None:
    """Check once per process that a bucket exists: HEAD answers the same for a missing bucket and a missing object."""
    try:
        client().head_bucket(Bucket=bucket)
    except ClientError as error:
        # Any other response, including access denied, means that the bucket exists.
        if code_of(error) == "404":
            raise StorageError(
                f"found no bucket {bucket}; expected the URL's bucket to exist; create the bucket or correct the URL"
            ) from None
    except BotoCoreError as error:
        raise storage_error(error, f"s3://{bucket}") from error
