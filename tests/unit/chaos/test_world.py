"""What the campaign sees of its job."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.world import World, until
from tests.support.handmade import manifest


def test_an_epoch_that_is_cleaned_up_while_the_campaign_waits_was_noted(tmp_path: Path, s3_endpoint: str) -> None:
    with World(tmp_path / "world", s3_endpoint, seed=7) as world:
        path = world.store.manifest_path(1, 0)

        def is_gone() -> bool:
            if world.store.files.size(path) is None and not world.lineages.has(1, 0):
                world.store.commit(manifest(lineage=1, epoch=0))
                return False
            world.store.files.delete(path)
            return True

        until(is_gone, "the clean-up", world)
        assert world.lineages.has(1, 0)
