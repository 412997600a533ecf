"""Creates the bucket of the compose file and tests its conditional puts, which exactly-once needs; idempotent."""

from __future__ import annotations

import argparse
import sys

import boto3
from botocore.exceptions import ClientError

from statecore.errors import ConfigurationError
from statecore.storage import open_store
from statecore.storage.conditional_put import require_one_winner

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
    try:
        require_one_winner(open_store(f"s3://{bucket}"))
    except ConfigurationError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
