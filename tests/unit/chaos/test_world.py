"""What the campaign sees of its job."""

from __future__ import annotations

from pathlib import Path

import boto3

from statecore.snapshot.manifest import encode_manifest
from tests.chaos.processes import until
from tests.chaos.world import World
from tests.support.handmade import manifest


def test_an_epoch_that_is_cleaned_up_while_the_campaign_waits_was_noted(tmp_path: Path, s3_endpoint: str) -> None:
    with World(tmp_path / "world", s3_endpoint, seed=7) as world:
        bucket, _, root = world.store.files.url.removeprefix("s3://").partition("/")
        path = world.store.manifest_path(1, 0)
        # As the job does, through the campaign's network.
        client = boto3.session.Session().client("s3", endpoint_url=world.network.url)

        def is_gone() -> bool:
            if world.store.files.size(path) is None and not world.lineages.has(1, 0):
                client.put_object(
                    Bucket=bucket, Key=f"{root}/{path}", Body=encode_manifest(manifest(lineage=1, epoch=0))
                )
                return False
            world.store.files.delete(path)
            return True

        until(is_gone, "the clean-up", world)
        assert world.lineages.has(1, 0)
