"""The boto3 client of a process, and the requests that need more care than boto3 takes of them."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, FlexibleChecksumError, HTTPClientError, IncompleteReadError
from tenacity import retry, retry_if_exception, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from statecore.errors import StorageError
from statecore.storage.s3_errors import TornAnswerError, code_of, storage_error

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# The waits double from 50 ms up to 20 s: half a minute without an answer, and the caller hears of it.
_ATTEMPTS = 10
_STOP, _WAIT = stop_after_attempt(_ATTEMPTS), wait_random_exponential(multiplier=0.05, max=20)
_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 5, 30
_CONNECTIONS = 16

# What reading the body of an answer raises.
_TORN = (HTTPClientError, IncompleteReadError, FlexibleChecksumError)


def client() -> S3Client:
    """Return this process's client, set up as for any boto3 program but for its patience."""
    return _client_of(os.getpid())


@lru_cache(maxsize=1)
def _client_of(pid: int) -> S3Client:
    # By process: connections must not be shared with the one that this was forked from.
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
    """Return an object's bytes; boto3 retries until an answer begins, this until it is whole.

    Args:
        bucket: Where it is.
        key: What it is called.
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
def put_new(bucket: str, key: str, data: bytes, metadata: dict[str, str]) -> None:
    """Put an object unless there is one; S3 asks to repeat a put that another one crossed."""
    client().put_object(Bucket=bucket, Key=key, Body=data, Metadata=metadata, IfNoneMatch="*")


@lru_cache
def require_bucket(bucket: str) -> None:
    """Tell a missing bucket from a missing object, for which the answer to HEAD is the same; asked once in a process.

    Raises:
        StorageError: There is no such bucket, or no answer.

    """
    try:
        client().head_bucket(Bucket=bucket)
    except ClientError as error:
        # Who has no right to ask is told that instead, so the bucket is there.
        if code_of(error) == "404":
            raise StorageError(
                f"found no bucket {bucket}; expected the one that the URL names; create the bucket or correct the URL"
            ) from None
    except BotoCoreError as error:
        raise storage_error(error, f"s3://{bucket}") from error
