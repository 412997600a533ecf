"""PostgresSink: rows and (lineage, epoch) in one transaction, in a real server."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import JobDefinitionError, ManifestError, MissingFileError, SinkError
from statecore.runtime import ParquetSink, PostgresSink
from statecore.runtime.epoch.publishing import publish
from statecore.runtime.job import SinkBinding
from statecore.runtime.sinks import postgres
from statecore.snapshot.manifest import Manifest
from tests.support.epochs import SCHEMA, Epochs
from tests.support.paths import REPO
from tests.support.postgres import PASSWORD, Database, PostgresServer
from tests.support.waiting import PATIENCE_S, wait


@pytest.fixture
def sink(database: Database) -> PostgresSink:
    return PostgresSink(database.dsn, "seen")


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_RETRY_S", 0.5)


def rows(database: Database, table: str = "seen") -> list[tuple[Any, ...]]:
    if not database("SELECT to_regclass(%s) IS NOT NULL", table)[0][0]:
        return []
    return sorted(database(f"SELECT * FROM {table}"))


def remembered(database: Database, table: str = "statecore_published") -> list[tuple[Any, ...]]:
    return sorted(database(f"SELECT job, sink, lineage, epoch FROM {table}"))


class TestOnce:
    def test_an_epoch_published_again_and_again_is_there_once(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        committed = epochs.run(sink, [(1, "a"), (2, "b")])
        assert epochs.store.files.list("_staged") == []
        epochs.publish(sink, committed)
        # Also when only the table has a record of it.
        epochs.forget()
        epochs.publish(sink, committed)
        assert rows(database) == [(1, "a"), (2, "b")]
        assert remembered(database) == [("orders", "seen", 1, 5)]

    def test_epochs_lineages_jobs_and_sinks_are_told_apart(
        self, epochs: Epochs, sink: PostgresSink, database: Database, tmp_path: Path
    ) -> None:
        for number, (lineage, epoch) in enumerate([(1, 5), (1, 6), (2, 5), (2, 6)]):
            epochs.run(sink, [(number, "x")], lineage, epoch)
        epochs.run(sink, [(4, "x")], 2, 6, name="late")
        other = Epochs(type(epochs.store).at(str(tmp_path / "other")), job="returns")
        other.run(sink, [(5, "x")], 2, 6)
        assert rows(database) == [(number, "x") for number in range(6)]
        # Only the newest of each is remembered.
        assert remembered(database) == [
            ("orders", "late", 2, 6), ("orders", "seen", 2, 6), ("returns", "seen", 2, 6),
        ]  # fmt: skip

    @pytest.mark.parametrize(("lineage", "epoch"), [(1, 9), (2, 5)])
    def test_an_epoch_before_the_newest_is_refused_although_its_record_is_gone(
        self, epochs: Epochs, sink: PostgresSink, database: Database, lineage: int, epoch: int
    ) -> None:
        """A frozen driver wakes up between its look at the job's marker and the insert."""
        epochs.run(sink, [(1, "a")], lineage, epoch)
        epochs.run(sink, [(2, "b")], 2, 6)
        assert remembered(database) == [("orders", "seen", 2, 6)]
        epochs.forget()
        with pytest.raises(
            SinkError, match=r"found epoch 6 of lineage 2 .*; expected epoch .* to be later; if another"
        ):
            epochs.run(sink, [(3, "c")], lineage, epoch)
        assert rows(database) == [(1, "a"), (2, "b")]
        assert remembered(database) == [("orders", "seen", 2, 6)]

    def test_several_files_of_an_epoch_go_in_together(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        outputs = epochs.staged(sink, [(1, "a")]) + epochs.staged(sink, [(2, "b")])
        outputs[1:1] = epochs.staged(sink, [])
        epochs.staged(sink, [(3, "a lost attempt")])
        epochs.publish(sink, epochs.committed(outputs))
        assert rows(database) == [(1, "a"), (2, "b")]

    def test_two_publishers_at_once_publish_once(self, epochs: Epochs, sink: PostgresSink, database: Database) -> None:
        """A paused driver resumes while its successor publishes; neither table exists yet."""
        committed = epochs.committed(epochs.staged(sink, [(n, "x") for n in range(1000)]))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: epochs.publish(sink, committed), range(4)))
        assert len(rows(database)) == 1000

    @pytest.mark.parametrize("attempt", range(3))
    def test_two_sinks_of_a_job_may_append_to_one_new_table(
        self, epochs: Epochs, sink: PostgresSink, database: Database, attempt: int
    ) -> None:
        # The table of what is published is there already; that of the rows is not.
        epochs.publish(sink, epochs.committed(epochs.staged(sink, [(0, "x")])))
        both = {name: PostgresSink(database.dsn, "shared") for name in ("a", "b")}
        outputs = [
            each
            for name, each_sink in both.items()
            for each in epochs.staged(each_sink, [(n, name) for n in range(500)], 1, 6, name=name)
        ]
        bindings = [SinkBinding(name, "", SCHEMA, each) for name, each in both.items()]
        publish(bindings, epochs.committed(outputs, 1, 6), epochs.store, None)  # type: ignore[arg-type]
        assert len(rows(database, "shared")) == 1000

    def test_a_publisher_killed_between_copy_and_commit_leaves_nothing(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        epochs.run(sink, [(1, "before")], epoch=4)
        database("CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                 "PERFORM pg_advisory_xact_lock(42); RETURN NULL; END $$")  # fmt: skip
        database("CREATE TRIGGER hold AFTER INSERT ON seen FOR EACH STATEMENT EXECUTE FUNCTION hold()")
        committed = epochs.committed(epochs.staged(sink, [(2, "after")]))
        epochs.store.commit(committed)

        with database.server.connect(database.name) as holder:
            holder.execute("SELECT pg_advisory_lock(42)")
            with publisher(epochs, database) as process:
                waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                wait(lambda: database(waiting) == [(1,)], "all rows to be copied")
                process.kill()
                process.wait()
        assert rows(database) == [(1, "before")]
        wait(
            lambda: database("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'") == [(0,)], "its end"
        )
        assert rows(database) == [(1, "before")]
        assert remembered(database) == [("orders", "seen", 1, 4)]

        for _ in range(2):
            epochs.publish(sink, committed)
        assert rows(database) == [(1, "before"), (2, "after")]

    def test_a_publisher_that_fell_silent_is_not_waited_for(
        self, epochs: Epochs, sink: PostgresSink, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        epochs.run(sink, [(1, "before")], epoch=4)
        committed = epochs.committed(epochs.staged(sink, [(2, "after")]))
        with silent_publisher(epochs, sink, committed) as (silent, go_on):
            monkeypatch.setattr(postgres, "_RETRY_S", 0.0)
            monkeypatch.setattr(postgres, "_LOCK_TIMEOUT", "200ms")
            with pytest.raises(SinkError, match=r"found a lock in .*lock timeout.*; expected it to be released"):
                epochs.publish(sink, committed)
            # It had only been slow.
            go_on.set()
            silent.result(PATIENCE_S)
        assert rows(database) == [(1, "before"), (2, "after")]

    def test_a_publisher_that_stays_silent_is_ended_by_the_server(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        epochs.run(sink, [(1, "before")], epoch=4)
        committed = epochs.committed(epochs.staged(sink, [(2, "after")]))
        with silent_publisher(epochs, sink, committed, idle_timeout="2s") as (silent, go_on):
            # It waits for the lock, which the server frees long before it gives up.
            epochs.publish(sink, committed)
            assert rows(database) == [(1, "before"), (2, "after")]
            go_on.set()
            with pytest.raises(SinkError):
                silent.result(PATIENCE_S)
        assert rows(database) == [(1, "before"), (2, "after")]

    def test_what_another_run_of_the_job_published_is_not_taken_for_this_one(
        self, epochs: Epochs, sink: PostgresSink, database: Database, tmp_path: Path
    ) -> None:
        epochs.run(sink, [(1, "a")])
        anew = Epochs(type(epochs.store).at(str(tmp_path / "anew")))
        with pytest.raises(SinkError, match=r"found epoch 5 of lineage 1 .*with other rows; expected .*; .*choose"):
            anew.run(sink, [(2, "b")])
        assert rows(database) == [(1, "a")]
        assert len(anew.store.files.list("_staged")) == 1

    def test_a_commit_waits_for_the_disk_where_the_server_would_not(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        database(f"ALTER DATABASE {database.name} SET synchronous_commit = off")
        database("CREATE TABLE seen (n int, k text)")
        database("CREATE TABLE found AS SELECT current_setting('synchronous_commit') AS setting")
        database("CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                 "UPDATE found SET setting = current_setting('synchronous_commit'); RETURN NULL; END $$")  # fmt: skip
        database("CREATE TRIGGER look AFTER INSERT ON seen FOR EACH STATEMENT EXECUTE FUNCTION look()")
        assert database("SELECT * FROM found") == [("off",)]
        epochs.run(sink, [(1, "a")])
        assert database("SELECT * FROM found") == [("on",)]


@contextmanager
def silent_publisher(
    epochs: Epochs, sink: PostgresSink, committed: Manifest, *, idle_timeout: str = postgres._IDLE_TIMEOUT
) -> Iterator[tuple[Future[None], threading.Event]]:
    """A publisher that has claimed the epoch and says nothing to the server until an event; it alone has the timeout.

    What two sessions do to each other is tested with one short timeout at a time: which of two is over first would
    depend on the machine.
    """
    copy, silent, go_on = postgres._Transaction.copy, threading.Event(), threading.Event()

    def falls_silent(transaction: Any) -> None:
        silent.set()
        assert go_on.wait(PATIENCE_S)
        copy(transaction)

    with ThreadPoolExecutor(1) as pool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgres, "_RETRY_S", 0.0)
            patch.setattr(postgres, "_IDLE_TIMEOUT", idle_timeout)
            patch.setattr(postgres._Transaction, "copy", falls_silent)
            publishing = pool.submit(epochs.publish, sink, committed)
            assert silent.wait(PATIENCE_S)
        try:
            yield publishing, go_on
        finally:
            go_on.set()


@contextmanager
def publisher(epochs: Epochs, database: Database) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.support.publisher", epochs.store.files.url, database.dsn, "seen"]
    process = subprocess.Popen(command, cwd=REPO)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class TestTable:
    def test_a_table_that_was_there_is_appended_to_whatever_the_order_of_its_columns(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        database("CREATE TABLE seen (k text PRIMARY KEY, dropped int, n integer NOT NULL)")
        database("ALTER TABLE seen DROP dropped")
        epochs.run(sink, [(1, "a")])
        assert rows(database) == [("a", 1)]

    @pytest.mark.parametrize(
        ("columns", "found"),
        [
            ("k text", "k text"),
            ("n bigint, k text", "n bigint, k text"),
            ("n integer, k varchar(9)", r"n integer, k character varying\(9\)"),
            ("n integer, k text, extra int", "n integer, k text, extra integer"),
            ('"N" integer, k text', "N integer, k text"),
        ],
    )
    def test_a_table_with_other_columns_is_refused_before_anything_is_written(
        self, epochs: Epochs, sink: PostgresSink, database: Database, columns: str, found: str
    ) -> None:
        database(f"CREATE TABLE seen ({columns})")
        expected = r'in the table "public"."seen"; expected n integer, k text, .*; alter the table'
        with pytest.raises(SinkError, match=f"found the columns {found} {expected}"):
            epochs.run(sink, [(1, "a")])
        assert rows(database) == []
        assert database("SELECT to_regclass('statecore_published')") == [(None,)]

    def test_a_corrected_table_gets_the_epoch_that_it_had_refused(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        database("CREATE TABLE seen (n int)")
        committed = epochs.committed(epochs.staged(sink, [(1, "a")]))
        with pytest.raises(SinkError):
            epochs.publish(sink, committed)
        database("ALTER TABLE seen ADD k text")
        epochs.publish(sink, committed)
        assert rows(database) == [(1, "a")]

    def test_both_tables_are_made_in_the_schema_that_is_named(self, epochs: Epochs, database: Database) -> None:
        database("CREATE SCHEMA billing")
        epochs.run(PostgresSink(database.dsn, "billing.totals"), [(1, "a")])
        assert rows(database, "billing.totals") == [(1, "a")]
        assert remembered(database, "billing.statecore_published") == [("orders", "seen", 1, 5)]

    def test_a_table_found_by_the_search_path_has_its_memory_in_its_own_schema(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        database("CREATE SCHEMA billing")
        database("CREATE TABLE billing.seen (n int, k text)")
        database(f"ALTER DATABASE {database.name} SET search_path = public, billing")
        epochs.run(sink, [(1, "a")])
        assert rows(database, "billing.seen") == [(1, "a")]
        assert remembered(database, "billing.statecore_published") == [("orders", "seen", 1, 5)]

    def test_a_schema_that_is_not_there_is_named(self, epochs: Epochs, database: Database) -> None:
        with pytest.raises(SinkError, match=r"found no schema for the table 'billing.totals' .*; expected .*; create"):
            epochs.run(PostgresSink(database.dsn, "billing.totals"), [(1, "a")])

    @pytest.mark.parametrize("name", ['x"; DROP TABLE victim; --', "Totals", "select", "%s {}", "größe"])
    def test_any_name_is_a_name_and_nothing_else(self, epochs: Epochs, database: Database, name: str) -> None:
        database("CREATE TABLE victim (n int)")
        schema = f"`{name}` int, k string"
        epochs.run(PostgresSink(database.dsn, name), [(1, "a'; DROP TABLE victim")], schema=schema, name="seen")
        found = database("SELECT attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid "
                         "WHERE relname = %s AND attnum > 0 ORDER BY attnum", name)  # fmt: skip
        assert found == [(name,), ("k",)]
        assert database("SELECT * FROM victim") == []

    @pytest.mark.parametrize("name", ["", "a.b.c", "a.", ".a", "x" * 64, "ä" * 32, "a\0b"])
    def test_a_table_name_that_is_none_is_refused_where_it_is_given(self, name: str) -> None:
        with pytest.raises(JobDefinitionError, match=r"(?s)found the table .*; expected .*; correct the name"):
            PostgresSink("", name)

    def test_a_column_name_that_postgresql_would_cut_off_is_refused(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        with pytest.raises(SinkError, match=r"found the columns \['x+'\]; expected .*; rename"):
            epochs.run(sink, [(1,)], schema=f"{'x' * 64} int")

    def test_a_user_who_may_only_insert_and_look_can_publish(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        epochs.run(sink, [(1, "a")])
        database(f"CREATE ROLE clerk_{database.name} LOGIN PASSWORD 'clerk'")
        database(f"GRANT INSERT, SELECT ON seen, statecore_published TO clerk_{database.name}")
        database("REVOKE CREATE ON SCHEMA public FROM public")
        clerk = f"{database.dsn} user=clerk_{database.name} password=clerk"
        epochs.run(PostgresSink(clerk, "seen"), [(2, "b")], epoch=6)
        assert rows(database) == [(1, "a"), (2, "b")]
        assert [epoch for *_, epoch in remembered(database)] == [5, 6]
        with pytest.raises(
            SinkError, match=r"permission denied .*; expected .*; correct the table or the user's rights"
        ):
            epochs.run(PostgresSink(clerk, "other"), [(3, "c")], epoch=7)

    def test_a_row_that_no_table_can_take_is_an_error_and_stays_staged(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        with pytest.raises(SinkError, match=r"refuses epoch 5 .*NUL.*; expected .*; .*a FunctionSink of the same name"):
            epochs.run(sink, [(1, "a"), (2, "b\0c")])
        assert rows(database) == []
        assert len(epochs.store.files.list("_staged")) == 1


INSTANT = datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC)
LOCAL = datetime(1, 1, 1, 0, 0, 0, 1)
VALUES: list[tuple[str, str, list[Any]]] = [
    ("boolean", "boolean", [True, False]),
    ("tinyint", "smallint", [-128, 127]),
    ("smallint", "smallint", [-32768, 32767]),
    ("int", "integer", [-(2**31), 2**31 - 1]),
    ("bigint", "bigint", [-(2**63), 2**63 - 1]),
    ("float", "real", [0.5, math.inf, -math.inf]),
    ("double", "double precision", [0.1, 1e-300, -math.inf]),
    ("decimal(38,10)", "numeric(38,10)", [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0E-10")]),
    ("decimal(3,0)", "numeric(3,0)", [Decimal(999)]),
    ("string", "text", ["", "\\N", "a\tb\nc\\d\"e'{,}", "größe 🦆", "NULL"]),
    ("binary", "bytea", [b"", bytes(range(256))]),
    ("date", "date", [date(1, 1, 1), date(9999, 12, 31)]),
    ("timestamp", "timestamp with time zone", [INSTANT, datetime(1883, 11, 18, 12, 3, 57, tzinfo=UTC)]),
    ("timestamp_ntz", "timestamp without time zone", [LOCAL, datetime(2024, 3, 31, 2, 30)]),
]
ARRAYS = [(f"array<{ddl}>", f"{type_text}[]", [[], values, [None, *values, None]]) for ddl, type_text, values in VALUES]
JSON: list[tuple[str, Any, Any]] = [
    ("struct<a:int,b:string>", (1, "x"), {"a": 1, "b": "x"}),
    ("struct<a:int,b:string>", (None, 'q"\\\n'), {"a": None, "b": 'q"\\\n'}),
    ("map<string,bigint>", {"a": 2**62, "b": None}, {"a": 2**62, "b": None}),
    ("map<int,boolean>", {-1: True}, {"-1": True}),
    ("map<date,double>", {date(2024, 2, 29): math.nan}, {"2024-02-29": "NaN"}),
    ("map<string,double>", {"a": -math.inf, "b": math.inf, "c": 0.5}, {"a": "-Infinity", "b": "Infinity", "c": 0.5}),
    ("array<array<int>>", [[1], [], None, [2, 3]], [[1], [], None, [2, 3]]),
    ("array<struct<t:timestamp,d:date>>", [(INSTANT, date(2024, 1, 1)), None],
     [{"t": "2024-02-29T23:59:59.999999Z", "d": "2024-01-01"}, None]),
    ("struct<t:timestamp_ntz,m:map<string,array<float>>>", (LOCAL, {"k": [0.5, math.nan]}),
     {"t": "0001-01-01T00:00:00.000001", "m": {"k": [0.5, "NaN"]}}),
    ("struct<b:binary>", (b"\0\xff",), {"b": "AP8="}),
]  # fmt: skip


class TestTypes:
    @pytest.mark.parametrize(("ddl", "type_text", "values"), VALUES + ARRAYS, ids=lambda value: str(value)[:24])
    def test_a_value_comes_back_as_it_was(
        self, epochs: Epochs, sink: PostgresSink, database: Database, ddl: str, type_text: str, values: list[Any]
    ) -> None:
        epochs.run(sink, [(n, value) for n, value in enumerate([*values, None])], schema=f"n int, v {ddl}")
        assert database("SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
                        "WHERE attrelid = 'seen'::regclass AND attname = 'v'") == [(type_text,)]  # fmt: skip
        assert [value for _, value in rows(database)] == [*values, None]

    def test_a_float_keeps_every_bit(self, epochs: Epochs, sink: PostgresSink, database: Database) -> None:
        values = [0.10000000149011612, 3.4028234663852886e38, 1.401298464324817e-45]
        epochs.run(sink, [(value,) for value in values], schema="v float")
        assert database("SELECT v::float8 FROM seen") == [(value,) for value in values]

    @pytest.mark.parametrize("ddl", ["float", "double"])
    def test_not_a_number_comes_back_as_such(
        self, epochs: Epochs, sink: PostgresSink, database: Database, ddl: str
    ) -> None:
        epochs.run(sink, [(math.nan, [math.nan])], schema=f"v {ddl}, a array<{ddl}>")
        ((value, (element,)),) = rows(database)
        assert math.isnan(value)
        assert math.isnan(element)

    @pytest.mark.parametrize(("ddl", "value", "expected"), JSON, ids=lambda value: str(value)[:40])
    def test_what_has_parts_is_jsonb(
        self, epochs: Epochs, sink: PostgresSink, database: Database, ddl: str, value: Any, expected: Any
    ) -> None:
        epochs.run(sink, [(1, value), (2, None)], schema=f"n int, v {ddl}")
        assert database("SELECT pg_typeof(v)::text, v FROM seen ORDER BY n") == [("jsonb", expected), ("jsonb", None)]

    def test_a_decimal_in_jsonb_keeps_every_digit(self, epochs: Epochs, sink: PostgresSink, database: Database) -> None:
        value = Decimal("1234567890123456789012345678.0123456789")
        epochs.run(sink, [((value,),)], schema="v struct<d:decimal(38,10)>")
        assert database("SELECT (v->>'d')::numeric FROM seen") == [(value,)]

    def test_an_instant_is_the_same_whatever_the_time_zone_of_the_server(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        database(f"ALTER DATABASE {database.name} SET timezone = 'America/New_York'")
        database(f"ALTER DATABASE {database.name} SET datestyle = 'SQL, DMY'")
        there = INSTANT.astimezone(timezone(timedelta(hours=9)))
        epochs.run(sink, [(there, LOCAL, date(2024, 2, 3))], schema="t timestamp, l timestamp_ntz, d date")
        sql = "SELECT t = %s, l = %s, d = %s FROM seen"
        assert database(sql, INSTANT, LOCAL, date(2024, 2, 3)) == [(True, True, True)]


class TestConnection:
    def test_what_the_dsn_leaves_out_comes_from_the_environment(
        self, epochs: Epochs, database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        passwords = tmp_path / "passwords"
        passwords.write_text(f"*:*:*:tester:{PASSWORD}\n")
        passwords.chmod(0o600)
        place = {"PGHOST": "127.0.0.1", "PGPORT": str(database.server.port), "PGDATABASE": database.name}
        sink = PostgresSink("user=tester", "seen")
        with monkeypatch.context() as patch:
            for name, value in {**place, "PGPASSFILE": str(passwords), "PGCLIENTENCODING": "latin1"}.items():
                patch.setenv(name, value)
            epochs.run(sink, [(1, "🦆")])
            told = repr(sink)
        assert rows(database) == [(1, "🦆")]
        assert f"database '{database.name}' at 127.0.0.1, port {database.server.port}, as user 'tester'" in told

    @pytest.mark.usefixtures("hurried")
    def test_no_password_is_ever_told(self, epochs: Epochs, database: Database) -> None:
        secret = "s3cr%2Dt"
        server = f"127.0.0.1:{database.server.port}"
        nobody = PostgresServer.dsn(database.server).replace(str(database.server.port), "1")
        sinks = {
            "refused": PostgresSink(f"postgresql://tester:{secret}@{server}/{database.name}", "seen"),
            "away": PostgresSink(f"{nobody} password='s3cr-t'", "seen"),
            "lost": PostgresSink(f"postgresql://tester:{secret}@nowhere.invalid/{database.name}", "seen"),
            "no such database": PostgresSink(database.dsn.replace(database.name, "nothing"), "seen"),
        }
        for sink in sinks.values():
            with pytest.raises(
                SinkError, match=r"found no connection to publish .* in database '\w+' at .*; expected"
            ) as raised:
                epochs.run(sink, [(1, "a")])
            told = [str(raised.value), repr(raised.value), str(raised.value.__cause__), repr(sink), str(sink)]
            told.append(repr(vars(sink)))
            for words in told:
                for password in ("s3cr-t", secret, PASSWORD):
                    assert password not in words
            dumped = pickle.dumps(sink)
            assert b"s3cr" not in dumped
            assert PASSWORD.encode() not in dumped
            assert repr(pickle.loads(dumped)) == repr(sink)

    @pytest.mark.parametrize(
        "dsn",
        [
            "postgresql+psycopg://u:secret@h/d",
            "host=h secret",
            "postgresql://u:sec ret%@h/d",
            "postgresql://u:my@secret@h/d",
            "postgresql://u:my/secret@h/d",
            "postgresql://u:12/secret@h/d",
            "port=secret",
        ],
    )
    def test_a_dsn_that_does_not_read_is_refused_without_repeating_it(self, dsn: str) -> None:
        with pytest.raises(JobDefinitionError, match=r"found a dsn .*; expected .*; correct it") as raised:
            PostgresSink(dsn, "seen")
        assert "secret" not in str(raised.value)
        assert raised.value.__suppress_context__ or raised.value.__context__ is None

    def test_a_refused_password_is_not_tried_again(
        self, epochs: Epochs, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises(SinkError, match="password authentication failed"):
            epochs.run(PostgresSink(database.server.dsn(database.name, "wrong"), "seen"), [(1, "a")])
        assert "retrying" not in caplog.text

    def test_a_server_that_comes_back_gets_the_rows_once(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        committed = epochs.committed(epochs.staged(sink, [(1, "a")]))
        database.server.stop()
        started = threading.Timer(1, database.server.start)
        started.start()
        try:
            epochs.publish(sink, committed)
        finally:
            started.join()
        assert rows(database) == [(1, "a")]

    def test_a_session_that_the_server_ends_is_begun_anew(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        epochs.run(sink, [(1, "before")], epoch=4)
        committed = epochs.committed(epochs.staged(sink, [(2, "after")]))
        with database.server.connect(database.name) as holder:
            holder.execute("SELECT pg_advisory_lock(43)")
            database("CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                     "PERFORM pg_advisory_xact_lock(43); RETURN NULL; END $$")  # fmt: skip
            database("CREATE TRIGGER hold AFTER INSERT ON seen FOR EACH STATEMENT EXECUTE FUNCTION hold()")
            thread = threading.Thread(target=epochs.publish, args=(sink, committed), daemon=True)
            thread.start()
            found: list[tuple[Any, ...]] = []
            while not found:
                found = database("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            database("SELECT pg_terminate_backend(%s)", found[0][0])
        thread.join()
        assert rows(database) == [(1, "before"), (2, "after")]

    @pytest.mark.usefixtures("hurried")
    def test_a_server_that_stays_away_fails_the_epoch_which_is_published_later(
        self, epochs: Epochs, database: Database
    ) -> None:
        away = PostgresSink(database.dsn.replace(str(database.server.port), "1"), "seen")
        committed = epochs.committed(epochs.staged(away, [(1, "a")]))
        with pytest.raises(SinkError, match=r"127.0.0.1, port 1, .*the epoch stays committed"):
            epochs.publish(away, committed)
        epochs.publish(PostgresSink(database.dsn, "seen"), committed)
        assert rows(database) == [(1, "a")]


class TestSinksThatChange:
    def test_a_sink_whose_last_epoch_is_published_may_be_renamed_moved_or_dropped(
        self, epochs: Epochs, sink: PostgresSink, database: Database, tmp_path: Path
    ) -> None:
        committed = epochs.run(sink, [(1, "a")])
        epochs.publish(ParquetSink(tmp_path / "instead"), committed)
        epochs.publish(PostgresSink(database.dsn, "instead"), committed)
        epochs.publish(sink, committed, name="renamed")
        publish([], committed, epochs.store, epochs.spark)
        assert rows(database) == [(1, "a")]
        assert rows(database, "instead") == []

    def test_a_sink_whose_last_epoch_is_not_published_must_stay_until_it_is(
        self, epochs: Epochs, sink: PostgresSink, database: Database, tmp_path: Path
    ) -> None:
        committed = epochs.committed(epochs.staged(sink, [(1, "a")]))
        with pytest.raises(ManifestError, match=r"found outputs of epoch 5 for \['seen'\]; expected .*; restore the m"):
            epochs.publish(sink, committed, name="renamed")
        with pytest.raises(MissingFileError, match=r"rows of epoch 5 missing: .*; expected .*undo the change"):
            epochs.publish(ParquetSink(tmp_path / "instead"), committed)
        epochs.publish(sink, committed)
        assert rows(database) == [(1, "a")]

    def test_an_output_that_was_given_other_columns_waits_for_the_former_ones(
        self, epochs: Epochs, sink: PostgresSink, database: Database
    ) -> None:
        committed = epochs.committed(epochs.staged(sink, [(1, "a")]))
        with pytest.raises(
            SinkError, match=r"found rows with the columns n int32, k string .*; expected n int64, .*; restore"
        ):
            epochs.publish(sink, committed, schema="n bigint, k string")
        assert rows(database) == []


def test_a_flipped_byte_in_a_staged_file_is_found(epochs: Epochs, sink: PostgresSink, database: Database) -> None:
    committed = epochs.committed(epochs.staged(sink, [(1, "a")]))
    file = Path(epochs.store.describe(committed.outputs[0].file.path))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(Exception, match=f"found {file} .*SHA-256"):
        epochs.publish(sink, committed)
    assert rows(database) == []
