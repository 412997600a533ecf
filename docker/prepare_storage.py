"""Creates the bucket of the compose file and tests its conditional puts, which exactly-once needs; idempotent."""

from __future__ import annotations

import argparse
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import boto3
from botocore.exceptions import ClientError

from statecore.errors import AlreadyExistsError
from statecore.storage import FileStore, open_store

_WRITERS = 8
_EXISTS = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


def main() -> None:
    """Parse arguments and create the bucket at boto3's endpoint; exit with 1 if its conditional puts are broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bucket", required=True, help="name of the bucket")
    bucket = parser.parse_args().bucket
    try:
        boto3.session.Session().client("s3").create_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] not in _EXISTS:
            raise
    winners = puts_that_succeed(open_store(f"s3://{bucket}/probes"))
    if winners != 1:
        sys.exit(
            f"found {winners} of {_WRITERS} conditional puts (If-None-Match: *) of one object successful in "
            f"s3://{bucket}; expected 1, or else two drivers could commit the same epoch; use another storage, or "
            "another release of it"
        )


def puts_that_succeed(store: FileStore) -> int:
    """Return how many of several concurrent writers created the same file."""
    path = uuid.uuid4().hex

    def put(writer: int) -> bool:
        try:
            store.put_if_absent(path, b"%d" % writer)
        except AlreadyExistsError:
            return False
        return True

    try:
        with ThreadPoolExecutor(_WRITERS) as pool:
            return sum(pool.map(put, range(_WRITERS)))
    finally:
        store.delete(path)


if __name__ == "__main__":
    main()
