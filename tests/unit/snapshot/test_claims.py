"""Claims: as long as somebody reads a manifest, everybody can see it, and no longer."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import pytest

from statecore.errors import ManifestError, MissingFileError, StorageError, UnsafePathError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import Claim, claimed, claims, remove_expired
from tests.support.handmade import manifest
from tests.support.waiting import wait


@pytest.fixture
def path(store: CheckpointStore) -> str:
    return store.commit(manifest())


def test_a_claim_is_there_while_its_block_runs_and_gone_afterwards(store: CheckpointStore, path: str) -> None:
    assert claims(store.files) == []
    with claimed(store.files, path, "a copy"):
        (claim,) = claims(store.files)
        assert (claim.manifest, claim.holder) == (path, "a copy")
        assert store.claimed() == {path}
    assert claims(store.files) == []
    assert store.files.list("claims") == []


def test_a_claim_goes_also_when_its_block_fails(store: CheckpointStore, path: str) -> None:
    with pytest.raises(ZeroDivisionError), claimed(store.files, path, "a copy"):
        raise ZeroDivisionError
    assert store.files.list("claims") == []


def test_one_manifest_can_be_claimed_by_several_and_one_that_is_done_takes_away_its_own_claim_alone(
    store: CheckpointStore, path: str
) -> None:
    with claimed(store.files, path, "a copy"):
        with claimed(store.files, path, "a rewrite"):
            assert sorted(claim.holder for claim in claims(store.files)) == ["a copy", "a rewrite"]
        assert [claim.holder for claim in claims(store.files)] == ["a copy"]


def test_what_is_not_there_cannot_be_claimed(store: CheckpointStore) -> None:
    missing = "savepoints/gone/manifest.json"
    with (
        pytest.raises(
            MissingFileError, match=rf"{store.files.url}/{missing}; expected it for a copy; .*another savepoint"
        ),
        claimed(store.files, missing, "a copy"),
    ):
        pytest.fail("the block ran")
    assert store.files.list("claims") == []


def test_a_path_that_leaves_the_store_is_refused(store: CheckpointStore) -> None:
    with pytest.raises(UnsafePathError), claimed(store.files, "../other/manifest.json", "a copy"):
        pytest.fail("the block ran")
    assert store.files.list("claims") == []


def test_a_claim_is_renewed_while_its_block_runs_also_after_a_renewal_that_failed(
    store: CheckpointStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statecore.snapshot.claims._RENEW_S", 0.01)
    write, failures = store.files.write, iter([StorageError("found no answer; expected one; check the network")])

    def failing_once(path: str, data: bytes) -> None:
        for error in failures:
            raise error
        write(path, data)

    with claimed(store.files, path, "a long rewrite"):
        (first,) = claims(store.files)
        monkeypatch.setattr(store.files, "write", failing_once)
        wait(lambda: [claim.expires_ms > first.expires_ms for claim in claims(store.files)] == [True], "a renewal")
    assert store.files.list("claims") == []


def test_the_claim_of_a_killed_holder_expires(
    store: CheckpointStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with claimed(store.files, path, "a driver that is killed"):
        (entry,) = store.files.list("claims")
        left_behind = store.files.read(entry.path)
    store.files.write(entry.path, left_behind)
    lifetime_s, now_s = 15 * 60, time.time()
    for later_s, counts in [(lifetime_s - 60, True), (lifetime_s + 60, False)]:
        with monkeypatch.context() as patch:
            patch.setattr("statecore.snapshot.claims.time.time", lambda later_s=later_s: now_s + later_s)
            assert bool(claims(store.files)) is counts
            remove_expired(store.files)
            assert bool(store.files.list("claims")) is counts


def unknown_field(claim: Claim) -> bytes:
    return msgspec.json.encode({**msgspec.structs.asdict(claim), "more": 1})


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda c: msgspec.json.encode(c).replace(b"copy", b"\xffopy"),
        lambda _: b"[]",
        unknown_field,
        lambda c: msgspec.json.encode(c)[:-4],
    ],
    ids=["empty", "a damaged byte", "no claim", "unknown field", "cut short"],
)
def test_a_claim_that_cannot_be_read_is_named(store: CheckpointStore, damage: Callable[[Claim], bytes]) -> None:
    claim = Claim(manifest="manifests/x.json", holder="a copy", expires_ms=2**60)
    store.files.write("claims/x.json", damage(claim))
    message = r"found claims/x\.json, which is not a claim .*; expected .*; move the file"
    with pytest.raises(ManifestError, match=message):
        claims(store.files)


def test_a_claim_that_goes_while_others_are_looked_at_is_no_error(store: CheckpointStore, path: str) -> None:
    class Vanishing:
        """The store, in which whatever was listed is gone when it is read."""

        list = staticmethod(store.files.list)

        @staticmethod
        def read(path: str) -> bytes:
            store.files.delete(path)
            return store.files.read(path)

    with claimed(store.files, path, "a copy"):
        assert claims(Vanishing()) == []  # type: ignore[arg-type]
