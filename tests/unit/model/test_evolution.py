"""State of an older type is converted without loss, or refused with both types in the message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import StateMigrationError, UnsupportedTypeError
from statecore.model.arrow_values import from_arrow, to_arrow
from statecore.model.evolution import migration
from statecore.model.parsing import parse_type
from statecore.model.values import value_type


# The machine may be busy; slowness proves nothing here.
def migrated(old: str, new: str, value: Any, renames: Mapping[str, str] | None = None) -> Any:
    """Store a value with the old type, convert it, and check it equals a value stored with the new type."""
    convert = migration(old, new, renames or {}, "totals")
    assert convert is not None
    found = convert(value_type(old).conform(value))
    for same in (value_type(new).conform(found), *from_arrow(to_arrow([found], parse_type(new).arrow()))):
        assert (repr(same), type(same)) == (repr(found), type(found))
    return found


@pytest.mark.parametrize(
    ("old", "new", "value", "expected"),
    [
        ("struct<a:int>", "struct<a:int,b:string>", (1,), (1, None)),
        ("struct<a:int,b:string>", "struct<b:string>", (1, "x"), ("x",)),
        ("struct<a:int,b:string>", "struct<b:string,a:int>", (1, "x"), ("x", 1)),
        ("struct<a:int>", "struct<A:int>", (1,), (None,)),
        ("struct<a:int not null>", "struct<a:int>", (1,), (1,)),
        ("struct<a:int,b:int not null>", "struct<b:bigint not null,c:int>", (1, 2), (2, None)),
        ("struct<a:struct<b:int>>", "struct<a:struct<b:int,c:int>>", ((1,),), ((1, None),)),
        ("struct<a:struct<b:int>>", "struct<a:struct<b:int,c:int>>", (None,), (None,)),
        ("struct<a:struct<b:int>>", "struct<a:struct<b:int,c:int>>", None, None),
        ("array<struct<a:int>>", "array<struct<b:int,a:double>>", [(1,), None], [(None, 1.0), None]),
        ("map<int,struct<a:int>>", "map<int,struct<a:int,b:int>>", {1: (2,), 3: None}, {1: (2, None), 3: None}),
        ("array<map<int,array<tinyint>>>", "array<map<int,array<float>>>", [{1: [1, None]}], [{1: [1.0, None]}]),
        ("array<array<int>>", "array<array<bigint>>", [[1], None], [[1], None]),
    ],
)  # fmt: skip
def test_a_change_that_keeps_what_is_stored_is_made(old: str, new: str, value: Any, expected: Any) -> None:
    assert migrated(old, new, value) == expected


WIDER = [
    ("tinyint", "smallint", -128, -128),
    ("tinyint", "bigint", 127, 127),
    ("smallint", "int", -32768, -32768),
    ("int", "bigint", 2**31 - 1, 2**31 - 1),
    ("tinyint", "float", 127, 127.0),
    ("smallint", "float", -32768, -32768.0),
    ("smallint", "double", 32767, 32767.0),
    ("int", "double", -(2**31), -(2.0**31)),
    ("float", "double", 0.1, 0.10000000149011612),
    ("float", "double", float("nan"), float("nan")),
    ("tinyint", "decimal(3,0)", -128, Decimal(-128)),
    ("smallint", "decimal(7,2)", 32767, Decimal("32767.00")),
    ("int", "decimal(10,0)", -(2**31), Decimal(-(2**31))),
    ("bigint", "decimal(19,0)", -(2**63), Decimal(-(2**63))),
    ("bigint", "decimal(38,19)", 2**63 - 1, Decimal(2**63 - 1)),
    ("decimal(5,2)", "decimal(6,3)", Decimal("-999.99"), Decimal("-999.990")),
    ("decimal(5,2)", "decimal(9,2)", Decimal("999.99"), Decimal("999.99")),
]


@pytest.mark.parametrize(("old", "new", "value", "expected"), WIDER, ids=lambda part: str(part))
def test_a_number_gets_wider_and_keeps_its_value(old: str, new: str, value: Any, expected: Any) -> None:
    found = migrated(old, new, value)
    assert found == expected or str(found) == str(expected) == "nan"
    assert type(found) is type(expected)
    assert migrated(f"struct<a:{old}>", f"struct<b:int,a:{new}>", (None,)) == (None, None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bigint", "int"),
        ("int", "smallint"),
        ("int", "float"),
        ("bigint", "double"),
        ("double", "float"),
        ("double", "decimal(38,10)"),
        ("float", "decimal(38,10)"),
        ("decimal(5,0)", "bigint"),
        ("decimal(5,2)", "double"),
        ("tinyint", "decimal(2,0)"),
        ("smallint", "decimal(5,1)"),
        ("int", "decimal(9,0)"),
        ("bigint", "decimal(19,1)"),
        ("decimal(5,2)", "decimal(5,3)"),
        ("decimal(5,2)", "decimal(5,1)"),
        ("decimal(5,2)", "decimal(38,1)"),
        ("boolean", "int"),
        ("int", "string"),
        ("string", "binary"),
        ("string", "string collate UNICODE_CI"),
        ("date", "timestamp"),
        ("timestamp_ntz", "timestamp"),
        ("int", "array<int>"),
        ("array<int>", "struct<a:int>"),
        ("struct<a:int>", "map<string,int>"),
        ("map<int,int>", "map<bigint,int>"),
        ("map<struct<a:int>,int>", "map<struct<a:int,b:int>,int>"),
        ("struct<a:int>", "struct<a:int not null>"),
        ("struct<a:int>", "struct<a:int,b:int not null>"),
        ("struct<a:int not null>", "struct<b:int not null>"),
        ("array<bigint>", "array<int>"),
        ("map<int,bigint>", "map<int,int>"),
    ],
)
def test_a_change_that_could_lose_or_invent_something_is_refused_with_both_types(old: str, new: str) -> None:
    for wrap in ("{}", "struct<x:array<map<string,{}>>>"):
        expected = re.escape(
            f"found the state 'totals' stored as {wrap.format(old)} and declared as {wrap.format(new)}"
        )
        with pytest.raises(StateMigrationError, match=rf"(?i){expected}: at .*; expected a compatible change"):
            migration(wrap.format(old), wrap.format(new), {}, "totals")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("bigint", "int", "at the value itself bigint becomes int"),
        ("struct<a:array<struct<b:bigint>>>", "struct<a:array<struct<b:int>>>", "at 'a.b' bigint becomes int"),
        ("struct<m:map<int,int>>", "struct<m:map<date,int>>", "at 'm' map keys change from int to date"),
        ("struct<a:int>", "struct<a:int,b:int not null>", "at 'b' a NOT NULL field is new"),
        ("struct<s:struct<a:int>>", "struct<s:struct<a:int not null>>", "at 's.a' a nullable field becomes NOT NULL"),
    ],
)
def test_the_refusal_names_the_place_and_what_does_not_fit(old: str, new: str, told: str) -> None:
    with pytest.raises(StateMigrationError, match=re.escape(told)):
        migration(old, new, {}, "totals")


def test_equal_types_need_no_migration_however_they_are_spelt() -> None:
    assert migration("struct<a:int,b:varchar(3)>", "STRUCT<a: INTEGER, b: STRING>", {}, "totals") is None


def test_another_type_is_a_migration_also_where_python_keeps_the_value() -> None:
    convert = migration("int", "bigint", {}, "totals")
    assert convert is not None
    assert (convert(5), convert(None)) == (5, None)


def test_a_text_that_is_no_type_is_refused() -> None:
    with pytest.raises(UnsupportedTypeError):
        migration("int", "integral", {}, "totals")


# --- renames ---


@pytest.mark.parametrize(
    ("old", "new", "renames", "value", "expected"),
    [
        ("struct<a:int>", "struct<b:int>", {"a": "b"}, (1,), (1,)),
        ("struct<a:int,c:int>", "struct<c:int,b:bigint,d:int>", {"a": "b"}, (1, 2), (2, 1, None)),
        ("struct<`b c`:int>", "struct<d:int>", {"b c": "d"}, (1,), (1,)),
        ("struct<s:struct<a:int>>", "struct<s:struct<b:int>>", {"s.a": "b"}, ((1,),), ((1,),)),
        ("struct<s:struct<a:int>>", "struct<t:struct<b:int>>", {"s": "t", "s.a": "b"}, ((1,),), ((1,),)),
        ("struct<x:array<struct<a:int>>>", "struct<x:array<struct<b:int>>>", {"x.a": "b"}, ([(1,)],), ([(1,)],)),
        ("array<struct<a:int>>", "array<struct<b:int>>", {"a": "b"}, [(1,)], [(1,)]),
        ("struct<m:map<int,struct<a:int>>>", "struct<m:map<int,struct<b:int>>>", {"m.a": "b"}, [{1: (2,)}],
         ({1: (2,)},)),
        # A rename from an earlier restart, here of the struct around the field renamed now.
        ("struct<t:struct<a:int>>", "struct<t:struct<b:int>>", {"s": "t", "s.a": "b"}, ((1,),), ((1,),)),
        ("struct<t:struct<a:int>>", "struct<t:struct<b:int>>", {"s": "t", "t.a": "b"}, ((1,),), ((1,),)),
    ],
)  # fmt: skip
def test_a_renamed_field_keeps_its_value(
    old: str, new: str, renames: dict[str, str], value: Any, expected: Any
) -> None:
    assert migrated(old, new, value, renames) == expected
    assert migration(new, new, renames, "totals") is None


@pytest.mark.parametrize(
    ("old", "new", "renames", "told"),
    [
        ("struct<a:int>", "struct<b:int>", {"x": "b"}, "at 'x' a field is renamed to 'b', but the old type"),
        ("struct<a:int>", "struct<b:int>", {"a": "c"}, "at 'a' a field is renamed to 'c', but the new type"),
        ("struct<a:int>", "struct<a:int,b:int>", {"a": "b"}, "but the new type has the fields ['a', 'b']"),
        ("struct<a:int,b:int>", "struct<b:int>", {"a": "b"}, "but another is, too, or already has that name"),
        (
            "struct<a:int,b:int>",
            "struct<c:int>",
            {"a": "c", "b": "c"},
            "at 'b' a field is renamed to 'c', but another is",
        ),
        ("struct<a:int,b:int>", "struct<a:int,b:int>", {"a": "b", "b": "a"}, "but the new type has the fields"),
        ("struct<a:int>", "struct<a:int>", {"s.a": "b"}, "at 's.a' there is no such field to rename to 'b'"),
        ("struct<s:struct<a:int>,c:int>", "struct<c:int>", {"s.a": "b"}, "there is no such field to rename"),
        ("int", "bigint", {"a": "b"}, "at 'a' there is no such field to rename to 'b'"),
        ("struct<a:bigint>", "struct<b:int>", {"a": "b"}, "at 'a' bigint becomes int"),
    ],
)
def test_a_rename_that_does_not_fit_is_refused(old: str, new: str, renames: dict[str, str], told: str) -> None:
    with pytest.raises(StateMigrationError, match=re.escape(told)):
        migration(old, new, renames, "totals")


# --- any chain of changes ---


@dataclass(frozen=True)
class Column:
    """A field that keeps its number through all changes of its name and type."""

    number: int
    name: str
    type: str
    nullable: bool = True

    def ddl(self) -> str:
        return f"`{self.name}`:{self.type}{'' if self.nullable else ' not null'}"


_WIDER_TYPES = {
    "tinyint": ["smallint", "int", "bigint", "float", "double", "decimal(5,1)"],
    "smallint": ["int", "bigint", "float", "double", "decimal(5,0)"],
    "int": ["bigint", "double", "decimal(10,0)"],
    "bigint": ["decimal(19,0)", "decimal(30,5)"],
    "float": ["double"],
    "decimal(5,1)": ["decimal(19,3)"],
    "decimal(5,0)": ["decimal(19,3)"],
    "decimal(10,0)": ["decimal(19,3)"],
    "decimal(19,0)": ["decimal(30,5)"],
}
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tinyint": st.integers(-128, 127),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "string": st.text("aäz", max_size=2),
    "array<int>": st.lists(st.integers(0, 9), max_size=2),
}
# How the struct lies in the state, how it is put in and taken out, and the path of its fields.
_WRAPS = [
    ("{}", lambda row: row, lambda value: value, ""),
    ("array<{}>", lambda row: [row], lambda value: value[0], ""),
    ("map<string,{}>", lambda row: {"k": row}, lambda value: value["k"], ""),
    ("struct<n:int,s:{}>", lambda row: (1, row), lambda value: value.s, "s."),
    ("struct<m:map<int,array<{}>>>", lambda row: ({1: [row]},), lambda value: value.m[1][0], "m."),
]


def struct_ddl(columns: list[Column]) -> str:
    return "struct<" + ",".join(column.ddl() for column in columns) + ">"


@st.composite
def changes(draw: st.DrawFn, columns: list[Column], fresh: int, path: str) -> tuple[list[Column], dict[str, str]]:
    """Return the columns after some changes at once, and the renames among them."""
    after, renames = list(draw(st.permutations(columns))), {}
    if len(after) > 1 and draw(st.booleans()):
        after.pop()
    for index, column in enumerate(after):
        if column.type in _WIDER_TYPES and draw(st.booleans()):
            column = replace(column, type=draw(st.sampled_from(_WIDER_TYPES[column.type])))
        if draw(st.booleans()):
            column = replace(column, nullable=True)
        if draw(st.booleans()):
            name = f"{draw(st.sampled_from(['r', 'r ']))}{fresh}_{index}"
            renames[path + column.name] = name
            column = replace(column, name=name)
        after[index] = column
    if draw(st.booleans()):
        after.insert(
            draw(st.integers(0, len(after))), Column(fresh, f"n{fresh}", draw(st.sampled_from(sorted(_VALUES))))
        )
    return after, renames


@given(st.data())
def test_no_chain_of_changes_loses_the_value_of_a_field_that_is_kept(data: st.DataObject) -> None:
    wrap, put, take, path = data.draw(st.sampled_from(_WRAPS))
    types = data.draw(st.lists(st.sampled_from(sorted(_VALUES)), min_size=1, max_size=4))
    columns = [Column(i, f"f{i}", kind, data.draw(st.booleans())) for i, kind in enumerate(types)]
    values = {c.number: data.draw(_VALUES[c.type] | st.none() if c.nullable else _VALUES[c.type]) for c in columns}
    ddl = wrap.format(struct_ddl(columns))
    stored = value_type(ddl).conform(put(tuple(values.values())))

    for step in range(data.draw(st.integers(1, 4))):
        columns, renames = data.draw(changes(columns, 100 + step, path))
        before, ddl = ddl, wrap.format(struct_ddl(columns))
        if (convert := migration(before, ddl, renames, "totals")) is not None:
            stored = convert(stored)
        assert migration(ddl, ddl, renames, "totals") is None

    (read,) = from_arrow(to_arrow([stored], parse_type(ddl).arrow()))
    assert repr(read) == repr(stored) == repr(value_type(ddl).conform(stored))
    found = take(stored)
    assert type(found) is type(take(read))
    assert list(found) == [values.get(column.number) for column in columns]
