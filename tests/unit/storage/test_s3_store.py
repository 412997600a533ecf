"""Promises of the S3 store alone: networks, credentials and buckets."""

from __future__ import annotations

import io
import multiprocessing
import random
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statecore.cluster.ports import free_ports
from statecore.errors import AlreadyExistsError, MissingFileError, StorageError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.storage import FileStore, open_store, s3_client
from tests.support.proxy import Fault, Proxy, ProxyHandler, heedless, lost_answer, proxy_to, refusal, torn_answer
from tests.support.s3 import SECRET
from tests.support.waiting import PATIENCE_S

BUSY = refusal(503, "ServiceUnavailable")
CONFLICT = refusal(409, "ConditionalRequestConflict")

USES: dict[str, Callable[[FileStore], Any]] = {
    "write": lambda store: store.write("a/new", b"1"),
    "put_if_absent": lambda store: store.put_if_absent("a/new", b"1"),
    "read": lambda store: store.read("a/x"),
    "read_range": lambda store: store.read_range("a/x", 0, 3),
    "open_input": lambda store: store.open_input("a/x").read(),
    "size": lambda store: store.size("a/x"),
    "list": lambda store: store.list("a"),
    "move": lambda store: store.move("a/x", "b/x"),
    "delete": lambda store: store.delete("a/x"),
    "delete_all": lambda store: store.delete_all(["a/x", "a/y"]),
    "folders": lambda store: store.folders("a"),
}
every_use = pytest.mark.parametrize("use", USES.values(), ids=USES)


@pytest.fixture
def direct(s3_url: str, proxied: Proxy) -> FileStore:
    """A store with one file."""
    store = open_store(s3_url)
    store.write("a/x", b"old content")
    return store


@pytest.fixture
def new_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process has one client; with this, the test has another one, made of the environment as it is then."""
    # boto3 waits up to seconds before it tries again; nobody needs to here.
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda seconds: None))
    s3_client._client_of.cache_clear()
    yield
    s3_client._client_of.cache_clear()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long boto3 would have slept before each attempt after the first."""
    made: list[float] = []
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=made.append))
    return made


@pytest.fixture(scope="module")
def proxied(s3_endpoint: str) -> Iterator[Proxy]:
    """A proxy that all requests of this process go through, from one client: to make one takes longer than a test."""
    with proxy_to(s3_endpoint) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda seconds: None))
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        s3_client._client_of.cache_clear()
        yield proxy
    s3_client._client_of.cache_clear()


@pytest.fixture
def proxy(proxied: Proxy, direct: FileStore) -> Iterator[Proxy]:
    """The same, as if nothing had been asked yet."""
    proxied.seen.clear()
    yield proxied
    proxied.reset()


@pytest.fixture
def store(direct: FileStore, proxy: Proxy) -> FileStore:
    """The same store, with all requests of this process through the proxy."""
    return open_store(direct.url)


def complaint(use: Callable[[], Any]) -> str:
    """Return the StorageError of a use; check its three parts, and that it contains no secret."""
    with pytest.raises(StorageError, match=r"(?s)found .*; expected .*; ") as raised:
        use()
    assert not isinstance(raised.value, MissingFileError)
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    return str(raised.value)


def test_a_file_that_s3_refuses_to_delete_among_others_is_told(store: FileStore, proxy: Proxy) -> None:
    root = store.url.removeprefix("s3://").partition("/")[2]
    error = f"<Error><Key>{root}/a/x</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    answer = f"<DeleteResult>{error}</DeleteResult>".encode()
    proxy.faults["POST"].append(lambda request: request.answer(200, [], answer))
    assert f"{store.url}/a/x" in complaint(lambda: store.delete_all(["a/x", "a/y"]))
    assert store.read("a/x") == b"old content"


def test_a_file_that_s3_is_too_busy_to_delete_is_deleted_later(store: FileStore, proxy: Proxy) -> None:
    root = store.url.removeprefix("s3://").partition("/")[2]
    error = f"<Error><Key>{root}/a/x</Key><Code>SlowDown</Code><Message>slower</Message></Error>"
    answer = f"<DeleteResult>{error}</DeleteResult>".encode()
    proxy.faults["POST"].extend([lambda request: request.answer(200, [], answer)] * 2)
    store.delete_all(["a/x", "a/y"])
    assert proxy.count("POST") == 3
    assert store.size("a/x") is None


class TestConditionalPuts:
    def test_a_put_whose_answer_was_lost_is_not_taken_for_a_lost_race(self, store: FileStore, proxy: Proxy) -> None:
        proxy.faults["PUT"].append(lost_answer)
        store.put_if_absent("m/1", b"mine")
        assert proxy.count("PUT") == 2
        assert store.read("m/1") == b"mine"

    def test_a_race_lost_before_the_answer_was_lost_is_lost_even_to_the_same_content(
        self, store: FileStore, proxy: Proxy
    ) -> None:
        store.put_if_absent("m/1", b"the same")
        proxy.faults["PUT"].append(lost_answer)
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent("m/1", b"the same")
        assert proxy.count("PUT") == 1 + 2

    def test_the_winner_may_be_moved_on_before_the_loser_looks(self, store: FileStore, proxy: Proxy) -> None:
        def moved_on(request: ProxyHandler) -> None:
            answer = request.forward()
            store.delete("m/1")
            request.answer(*answer)

        store.put_if_absent("m/1", b"first")
        proxy.faults["PUT"].append(moved_on)
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent("m/1", b"second")
        assert store.size("m/1") is None

    def test_a_conflict_is_tried_again(self, store: FileStore, proxy: Proxy) -> None:
        proxy.faults["PUT"].extend([CONFLICT, CONFLICT])
        store.put_if_absent("m/1", b"mine")
        assert store.read("m/1") == b"mine"

    def test_a_lost_answer_and_then_a_conflict_are_still_no_lost_race(self, store: FileStore, proxy: Proxy) -> None:
        proxy.faults["PUT"].extend([lost_answer, CONFLICT])
        store.put_if_absent("m/1", b"mine")
        assert proxy.count("PUT") == 3
        assert store.read("m/1") == b"mine"

    def test_a_storage_that_does_not_know_them_is_told(self, store: FileStore, proxy: Proxy) -> None:
        proxy.faults["PUT"].append(refusal(501, "NotImplemented"))
        assert "use storage that supports conditional puts" in complaint(lambda: store.put_if_absent("m/1", b""))

    def test_a_storage_that_does_not_heed_them_is_refused_before_a_driver_works_on_it(
        self, store: FileStore, proxy: Proxy
    ) -> None:
        CheckpointStore(store).claim_generation(1)
        proxy.always = heedless
        assert "overwrites an existing file on a conditional put" in complaint(
            lambda: CheckpointStore(store).claim_generation(2)
        )


# boto3 retries less and less often with a client that has met much trouble.
@pytest.mark.usefixtures("new_client")
class TestTroubleThatPasses:
    @every_use
    @pytest.mark.parametrize("fault", [BUSY, refusal(500, "InternalError"), lost_answer], ids=["503", "500", "lost"])
    def test_what_fails_a_few_times_is_tried_again(
        self, store: FileStore, proxy: Proxy, use: Callable[[FileStore], Any], fault: Fault
    ) -> None:
        for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            proxy.faults[method].extend([fault, fault])
        use(store)
        assert len(proxy.seen) >= 3

    def test_an_answer_that_breaks_off_is_asked_for_again(self, store: FileStore, proxy: Proxy) -> None:
        content = random.Random(3).randbytes(500_000)
        store.write("a/y", content)
        proxy.faults["GET"].extend([torn_answer, torn_answer])
        assert store.read("a/y") == content
        proxy.faults["GET"].extend([torn_answer, torn_answer])
        with store.open_input("a/y") as file:
            assert file.read() == content

    def test_a_part_of_a_large_file_is_sent_again(self, store: FileStore, proxy: Proxy) -> None:
        content = random.Random(4).randbytes(40 * 2**20)
        proxy.faults["PUT"].extend([BUSY, lost_answer])
        store.write("large", content)
        assert store.read("large") == content
        assert proxy.count("PUT") == 3 + 2

    def test_a_move_that_was_cut_between_its_two_steps_can_be_repeated(self, store: FileStore, proxy: Proxy) -> None:
        proxy.faults["DELETE"].append(refusal(403, "AccessDenied"))
        complaint(lambda: store.move("a/x", "b/x"))
        assert store.read("a/x") == store.read("b/x") == b"old content"

        store.move("a/x", "b/x")
        assert (store.size("a/x"), store.read("b/x")) == (None, b"old content")


class TestTroubleThatStays:
    @every_use
    def test_a_missing_bucket_is_named(self, s3_endpoint: str, use: Callable[[FileStore], Any]) -> None:
        store = open_store("s3://nobody-made-this-bucket/store")
        found = complaint(lambda: use(store))
        assert "nobody-made-this-bucket" in found
        assert "create the bucket or correct the URL" in found

    @every_use
    @pytest.mark.parametrize("profile", [None, "nobody"])
    def test_no_credentials_are_told_at_once(
        self,
        direct: FileStore,
        monkeypatch: pytest.MonkeyPatch,
        new_client: None,
        pauses: list[float],
        use: Callable[[FileStore], Any],
        profile: str | None,
    ) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        if profile:
            monkeypatch.setenv("AWS_PROFILE", profile)
        found = complaint(lambda: use(direct))
        assert f"found no usable credentials ({'ProfileNotFound' if profile else 'NoCredentialsError'})" in found
        assert "environment, profile or instance role" in found
        assert pauses == []

    @every_use
    def test_access_denied_says_which_rights_are_needed(
        self, store: FileStore, proxy: Proxy, use: Callable[[FileStore], Any]
    ) -> None:
        proxy.always = refusal(403, "AccessDenied")
        assert "grant these credentials s3:GetObject, s3:PutObject" in complaint(lambda: use(store))
        assert len(proxy.seen) == 1

    def test_a_missing_file_is_missing_though_nobody_may_ask_about_the_bucket(
        self, store: FileStore, proxy: Proxy
    ) -> None:
        s3_client.require_bucket.cache_clear()
        proxy.faults["HEAD"].extend([refusal(404, ""), refusal(403, "AccessDenied")])
        assert store.size("nothing") is None
        assert [path.count("/") for _, path, _ in proxy.seen] == [3, 1]

    @every_use
    def test_an_endpoint_that_refuses_is_given_up_after_the_attempts_that_boto3_was_told(
        self,
        direct: FileStore,
        monkeypatch: pytest.MonkeyPatch,
        new_client: None,
        pauses: list[float],
        use: Callable[[FileStore], Any],
    ) -> None:
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
        found = complaint(lambda: use(direct))
        assert "found no response for s3://" in found
        assert "check the network, the endpoint (AWS_ENDPOINT_URL) and the region" in found
        assert len(pauses) == 1

    def test_without_being_told_it_is_patient_for_half_a_minute(self, direct: FileStore, new_client: None) -> None:
        config: Any = s3_client.client().meta.config
        assert config.retries == {"mode": "standard", "total_max_attempts": 10}
        assert (config.connect_timeout, config.read_timeout) == (5, 30)

    def test_a_large_file_whose_last_step_fails_is_not_there_in_part(self, store: FileStore, proxy: Proxy) -> None:
        proxy.faults["POST"].extend([lambda request: request.answer(*request.forward()), refusal(403, "AccessDenied")])
        complaint(lambda: store.write("large/x", b"x" * 40 * 2**20))
        assert store.size("large/x") is None
        assert store.list("large") == []
        bucket = store.url.split("/")[2]
        assert "Uploads" not in s3_client.client().list_multipart_uploads(Bucket=bucket)


class TestReadsByRange:
    def test_of_a_large_file_only_what_is_read_is_fetched(self, store: FileStore, proxy: Proxy) -> None:
        payload = [random.Random(5).randbytes(1000) for _ in range(10)]
        table = pa.table({"key": range(10_000), "payload": payload * 1000})
        written = io.BytesIO()
        pq.write_table(table, written, row_group_size=1000, use_dictionary=False, compression="none")
        store.write("a/table", written.getvalue())
        assert len(written.getvalue()) > 10_000_000

        with store.open_input("a/table") as file, pq.ParquetFile(file) as parquet:
            assert parquet.read_row_group(7, columns=["key"])["key"].to_pylist() == list(range(7000, 8000))

        ranges = [tuple(map(int, seen.removeprefix("bytes=").split("-"))) for *_, seen in proxy.seen if seen]
        assert 0 < sum(end + 1 - start for start, end in ranges) < 1_000_000

    def test_small_reads_that_follow_each_other_are_one_request(self, store: FileStore, proxy: Proxy) -> None:
        with store.open_input("a/x") as file:
            assert [file.read(3), file.read(1), file.read(100), file.read(1)] == [b"old", b" ", b"content", b""]
            file.seek(4)
            assert file.read(3) == b"con"
        assert proxy.count("GET") == 1

    def test_any_series_of_seeks_and_reads_gives_what_a_local_file_gives(self, direct: FileStore) -> None:
        chance = random.Random(6)
        content = chance.randbytes(1_500_000)
        direct.write("a/y", content)
        truth = io.BytesIO(content)
        with direct.open_input("a/y") as file:
            for _ in range(150):
                offset, size = chance.randrange(1_600_000), chance.choice([0, 1, 1000, 100_000, 262_144, 700_000])
                truth.seek(offset)
                file.seek(offset)
                assert file.read(size) == truth.read(size)
                assert file.tell() == truth.tell()
            assert file.size() == len(content)

    def test_a_file_replaced_while_it_is_read_is_told_and_not_mixed(self, direct: FileStore) -> None:
        direct.write("a/y", b"1" * 1_000_000)
        with direct.open_input("a/y") as file:
            assert file.read(1) == b"1"
            direct.write("a/y", b"2" * 1_000_000)
            file.seek(900_000)
            assert "another process replaced it in the meantime" in complaint(lambda: file.read(10))


class TestKeys:
    def test_a_store_may_be_a_whole_bucket(self, s3_url: str) -> None:
        bucket = s3_url.removesuffix("/store")
        store = open_store(f"{bucket}/")
        store.write("a/x", b"1")
        assert store.url == bucket
        assert [entry.path for entry in store.list("a")] == ["a/x"]
        assert open_store(f"{bucket}/a").read("x") == b"1"

    def test_stores_beside_each_other_are_kept_apart(self, s3_url: str) -> None:
        for suffix in ("", "-2", "/store"):
            open_store(f"{s3_url}{suffix}").write("a/x", suffix.encode())
        assert [(entry.path, entry.size) for entry in open_store(s3_url).list("a")] == [("a/x", 0)]

    def test_keys_that_are_no_path_are_not_listed(self, direct: FileStore) -> None:
        bucket = direct.url.split("/")[2]
        for key in ("a/", "a/folder/", "a//x", "a/./x", "a/../x", "a\\x", "a/b\\x"):
            s3_client.client().put_object(Bucket=bucket, Key=f"store/{key}", Body=b"")
        assert [entry.path for entry in direct.list("a")] == ["a/x"]


@pytest.mark.usefixtures("new_client")
def test_threads_that_read_at_once_share_one_client() -> None:
    start = threading.Barrier(8)

    def get(_: int) -> object:
        start.wait(PATIENCE_S)
        return s3_client.client()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(id, pool.map(get, range(8))))) == 1
    assert s3_client._client_of.cache_info().misses == 1


def _read_in_child(store: FileStore, parents_client: object, results: Any) -> None:
    results.put((store.read("a/x"), s3_client.client() is parents_client))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_reads_over_connections_of_its_own(direct: FileStore) -> None:
    # Spark forks its Python workers. Two processes on one connection would get each other's answers.
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    child = fork.Process(target=_read_in_child, args=(direct, s3_client.client(), results))
    child.start()
    assert results.get(timeout=60) == (b"old content", False)
    child.join(30)
    assert s3_client.client() is s3_client.client()
