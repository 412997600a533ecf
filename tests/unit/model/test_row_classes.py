"""Rows that a dataclass or NamedTuple declares: columns, values, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, NamedTuple

import pyarrow as pa
import pytest

from statecore import OutputTag, ProcessFunction, ValueStateDescriptor
from statecore.errors import OutputTypeError, UnsupportedTypeError
from statecore.model import parse_row, row_ddl
from statecore.model.values import value_type
from statecore.state.output_schema import cast_to_schema, convert_to_schema
from statecore.testing import KeyedOperatorHarness

# mypy: disable-error-code="valid-type"


class Point(NamedTuple):
    x: int
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Item:
    sku: str
    cents: Annotated[int, "int"]


@dataclass
class Alert:
    KINDS: ClassVar[int] = 3
    seed: InitVar[int]
    customer: str
    ok: bool
    amount: Annotated[Decimal, "decimal(12,2)"]
    raw: bytes
    day: date
    at: datetime
    note: str | None = None
    items: list[Item] = field(default_factory=list)
    counts: dict[str, int | None] = field(default_factory=dict)
    where: Point | None = None
    local: Annotated[datetime | None, "timestamp_ntz"] = None
    tries: Annotated[int | None, 3] = None


ALERT = (
    "customer:string not null, ok:boolean not null, amount:decimal(12,2) not null, raw:binary not null, "
    "day:date not null, at:timestamp not null, note:string, "
    "items:array<struct<sku:string not null,cents:int not null>> not null, counts:map<string,bigint> not null, "
    "where:struct<x:bigint not null,y:double not null>, local:timestamp_ntz, tries:bigint"
)


def item(sku: Any, cents: Any) -> Item:
    return Item(sku, cents)


def alert(**given: Any) -> Alert:
    values = {"customer": "ann", "ok": True, "amount": Decimal("9.5"), "raw": b"r", "day": date(2026, 3, 2)}
    return Alert(**{"seed": 1, **values, "at": datetime(2026, 3, 2, tzinfo=UTC), **given})


def test_a_class_declares_the_columns_that_its_fields_have() -> None:
    assert row_ddl(Alert) == ALERT
    assert row_ddl(Point) == "x:bigint not null, y:double not null"
    assert row_ddl("k string") == "k string"
    parse_row(ALERT)


def test_an_instance_is_a_row_by_the_names_of_its_fields_at_any_depth() -> None:
    values = [alert(), alert(note="n", items=[Item("a", 1), ("b", 2)], counts={"x": None}, where=Point(1))]
    rows = convert_to_schema(values, parse_row(row_ddl(Alert)), "for a test").to_pylist()
    assert rows[0]["amount"] == Decimal("9.50")
    assert (rows[0]["note"], rows[0]["items"], rows[0]["where"]) == (None, [], None)
    assert rows[1]["items"] == [{"sku": "a", "cents": 1}, {"sku": "b", "cents": 2}]
    assert rows[1]["where"] == {"x": 1, "y": 0.0}

    reordered = convert_to_schema([Item("a", 1)], parse_row("cents int, sku string"), "for a test")
    assert reordered.to_pylist() == [{"cents": 1, "sku": "a"}]
    assert value_type("struct<cents:int,sku:string>").conform(Item("a", 1)) == (1, "a")


def test_a_field_with_a_default_is_added_without_a_change_to_those_who_write() -> None:
    @dataclass
    class Later:
        sku: str
        cents: int
        currency: str = "EUR"

    rows = convert_to_schema([Later("a", 1)], parse_row(row_ddl(Later)), "for a test")
    assert rows.to_pylist() == [{"sku": "a", "cents": 1, "currency": "EUR"}]
    # Writers of a dict or of the former class leave it empty, where it may be.
    rows = convert_to_schema([Item("a", 1), {"sku": "b"}], parse_row("sku string, cents int, currency string"), "for")
    assert [row["currency"] for row in rows.to_pylist()] == [None, None]


def test_one_column_takes_an_instance_as_a_row() -> None:
    @dataclass
    class One:
        n: int

    assert convert_to_schema([One(5), (6,), 7], parse_row(row_ddl(One)), "for a test").to_pylist() == [
        {"n": 5}, {"n": 6}, {"n": 7},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        (alert(customer=None), "field 'customer': found None, expected string not null"),
        (alert(amount=9.5), r"field 'amount': found 9.5, expected decimal\(12,2\)"),
        (alert(items=[item("a", 1), item("b", "2")]), r"field 'items\[1\].cents': found '2', expected int"),
        (alert(items=[item("a", None)]), r"field 'items\[0\].cents': found None, expected int not null"),
        (alert(where=(None, 1.0)), "field 'where.x': found None, expected bigint not null"),
        (Item("a", 1), "Item has fields 'cents', 'sku'"),
    ],
)
def test_a_misfit_is_refused_with_field_expected_and_found(value: Any, wrong: str) -> None:
    for values in ([value], [alert(), value, alert()]):
        with pytest.raises(OutputTypeError, match=rf"found the output .* for a test, which does not fit: {wrong}"):
            convert_to_schema(values, parse_row(row_ddl(Alert)), "for a test")


def test_one_declaration_serves_tag_main_output_and_harness() -> None:
    tag = OutputTag("items", Item)
    assert tag == OutputTag("items", row_ddl(Item))

    class Emit(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            ctx.output(tag, Item("a", value))
            yield Item("b", value)

    harness = KeyedOperatorHarness(Emit(), key=None, output=Item)
    harness.process(1)
    assert (harness.output, harness.side_output(tag)) == ([Item("b", 1)], [Item("a", 1)])
    with pytest.raises(OutputTypeError, match="side output 'items', which does not fit: field 'cents': found 'one'"):
        harness.process("one")


@dataclass
class Bare:
    amount: Decimal


@dataclass
class Mixed:
    either: int | str


@dataclass
class Anything:
    value: Any


@dataclass
class Tuples:
    pair: tuple[int, int]


@dataclass
class Inner:
    bare: list[Bare]


@dataclass
class Tree:
    children: list[Tree]


@dataclass
class Empty:
    pass


@pytest.mark.parametrize(
    ("declared", "wrong"),
    [
        (Bare, r"found Decimal as the type of Bare.amount; .*Annotated\[Decimal, 'decimal\(12,2\)'\]"),
        (Inner, "the type of Bare.amount"),
        (Mixed, r"found int \| str as the type of Mixed.either"),
        (Anything, "found Any as the type of Anything.value"),
        (Tuples, "the type of Tuples.pair"),
        (Tree, "found the class Tree within itself"),
        (Empty, "as the columns of a row; expected Spark DDL"),
        (int, "as the columns of a row"),
        (tuple, "as the columns of a row"),
        (5, "found 5 as the columns of a row"),
        (alert(), "as the columns of a row"),
    ],
)
def test_what_declares_no_columns_is_refused_with_place_and_remedy(declared: Any, wrong: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=wrong):
        OutputTag("t", declared)


def test_a_name_that_cannot_be_resolved_is_named() -> None:
    @dataclass
    class Local:
        value: Elsewhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(UnsupportedTypeError, match=r"class Local that cannot be resolved .*'Elsewhere'"):
        row_ddl(Local)


def test_state_takes_an_instance_as_a_struct() -> None:
    descriptor = ValueStateDescriptor("item", "struct<sku:string,cents:bigint>")
    assert value_type(descriptor.value_type).conform(Item("a", 1)) == ("a", 1)


def test_a_batch_with_a_null_in_a_column_that_is_not_null_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"sku": ["a", None], "cents": pa.array([1, 2], pa.int32())})
    with pytest.raises(OutputTypeError, match="found null in the column 'sku' of a batch emitted for a test"):
        cast_to_schema(batch, parse_row(row_ddl(Item)), "for a test")
    narrow = pa.RecordBatch.from_pydict({"sku": ["a"], "cents": pa.array([2**40], pa.int64())})
    with pytest.raises(
        OutputTypeError, match=r"field 'cents': found int64: .*; expected the columns sku string not nu"
    ):
        cast_to_schema(narrow, parse_row(row_ddl(Item)), "for a test")
