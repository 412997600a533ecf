"""State goes on under the key that it was written under: the same columns, in the same order, of the same types."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from statecore.errors import JobDefinitionError, StateMigrationError
from statecore.model.keys import KeyColumn, KeyColumns, check_key, check_renames


def key(text: str | None) -> KeyColumns | None:
    """Return the key of "name type, …"; "?" is unknown, as a column and for a whole key."""
    if text is None:
        return None
    parts = (column.split(" ") for column in text.split(", ") if column)
    return tuple(KeyColumn(*(None if each == "?" else each for each in part)) for part in parts)


@pytest.mark.parametrize(
    ("restored", "declared", "renames"),
    [
        ("a string, b string", "a string, b string", {}),
        ("", "", {}),
        # Before Spark has read a source only the names are known, and in a harness perhaps only the types.
        ("a string, b string", "a ?, b ?", {}),
        ("? string, ? string", "a string, b string", {}),
        ("? ?", "a string", {}),
        (None, "a string", {}),
        ("a string", None, {}),
        (None, None, {}),
        ("a string, b string", "x string, b string", {"a": "x"}),
        ("a string, b string", "x string, y string", {"a": "x", "b": "y"}),
        # It was renamed before, and the declaration was left in place.
        ("x string", "x string", {"a": "x"}),
        # Two renames, one after the other: a was called b in between.
        ("a string", "x string", {"a": "x", "b": "x"}),
        ("b string", "x string", {"a": "x", "b": "x"}),
    ],
)
def test_state_goes_on_under_its_own_key(
    restored: str | None, declared: str | None, renames: Mapping[str, str]
) -> None:
    check_key("operator 'totals'", key(restored), key(declared), renames)


@pytest.mark.parametrize(
    ("restored", "declared", "renames", "told"),
    [
        (
            "a string, b string", "b string, a string", {},
            r"found the key \(b string, a string\) for operator 'totals'; expected the key \(a string, b string\), "
            r"under which its state was written; put the columns back into this order, or carry the state over to the "
            r"new key with read_savepoint and write_savepoint",
        ),
        (
            "a string", "x ?", {},
            r"found the key \(x\) .* expected the key \(a string\), .*; if only the name has changed, declare it with "
            r"key_by\(…, renames=\{'a': 'x'\}\); for other columns carry the state over to the new key",
        ),
        ("a string, b string", "x string, b string", {}, r"renames=\{'a': 'x'\}"),
        ("a string, b string", "b string, x string", {}, r"\(a string, b string\), under .*; name these columns, or"),
        ("a string, b string", "b string, x string", {"a": "x"}, r"name these columns, or carry"),
        ("a string, b string", "a string", {}, r"key \(a string\) .* expected the key \(a string, b string\).*; name"),
        ("? string, ? string", "? string", {}, r"found the key \(string\) .* expected the key \(string, string\)"),
        ("a string", "a bigint", {}, r"key \(a bigint\) .* expected the key \(a string\), .*another key type is"),
        ("? string", "? bigint", {}, r"found the key \(bigint\) .* expected the key \(string\)"),
        ("a string", "x bigint", {"a": "x"}, "another key type is another key"),
        ("a string", "", {}, r"found no key for operator 'totals'; expected the key \(a string\)"),
        ("", "a string", {}, r"found the key \(a string\) .*; expected no key"),
        (None, "", {}, r"found no key .*; expected a key"),
        ("", None, {}, r"found a key .*; expected no key"),
    ],
)  # fmt: skip
def test_another_key_is_refused_with_what_to_do(
    restored: str | None, declared: str | None, renames: Mapping[str, str], told: str
) -> None:
    with pytest.raises(StateMigrationError, match=told):
        check_key("operator 'totals'", key(restored), key(declared), renames)


@pytest.mark.parametrize("renames", [{"a": "x"}, {"a": "x", "b": "x"}, {"a": "x", "b": "y"}, {}])
def test_a_rename_leads_to_a_column_of_the_key(renames: Mapping[str, str]) -> None:
    check_renames(("x", "y"), renames)


@pytest.mark.parametrize(
    "renames",
    [
        {"a": "z"},  # no column of the key
        {"x": "y"},  # the old name is still a column: this would hide a swap
        {"x": "y", "y": "x"},
        {"x": "x"},
    ],
)
def test_a_rename_that_does_not_fit_the_key_is_refused(renames: Mapping[str, str]) -> None:
    with pytest.raises(
        JobDefinitionError,
        match=r"found renames=\{.*\} for the key columns \('x', 'y'\); expected .*; correct or remove",
    ):
        check_renames(("x", "y"), renames)
