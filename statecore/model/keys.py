"""The key that state was written under, and the key that a program declares for it.

State is found by the values of its key, in the order of the key's columns. Two swapped columns of one type would find
the state of other keys, and no type would show it. So a key is its columns: their names and types, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from statecore.errors import JobDefinitionError, StateMigrationError

_REWRITE = "carry the state over to the new key with read_savepoint and write_savepoint"


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a key.

    Attributes:
        name: None if unknown, as in a harness whose key is a function.
        type: Canonical Spark DDL; None if unknown, as before Spark has read a source.

    """

    name: str | None
    type: str | None


KeyColumns = tuple[KeyColumn, ...]
"""The columns of a key, in their order; none without a key."""


def check_key(owner: str, restored: KeyColumns | None, declared: KeyColumns | None, renames: Mapping[str, str]) -> None:
    """Check that state was written under the key that a program declares; what is unknown fits.

    Args:
        owner: Whose key it is, for messages.
        restored: The key that the state was written under; None if only known to exist.
        declared: The program's key; None if only known to exist.
        renames: Old name of a column → its name in ``declared``.

    Raises:
        StateMigrationError: It is another key.

    """
    if () in (restored, declared):
        fits, remedy = restored == declared, "key the stream as before, or use a new uid"
    elif restored is None or declared is None:
        return
    elif not _same_names(restored, declared, renames):
        fits, remedy = False, _remedy(restored, declared, renames)
    else:
        fits = all(_same(old.type, new.type) for old, new in zip(restored, declared, strict=True))
        remedy = "another key type is another key: cast the column in its source, rewrite the state or use a new uid"
    if not fits:
        written = "because its state was written without one" if restored == () else "under which its state was written"
        raise StateMigrationError(
            f"found {_described(declared)} for {owner}; expected {_described(restored)}, {written}; {remedy}"
        )


def check_renames(columns: Sequence[str], renames: Mapping[str, str]) -> None:
    """Check that renames lead to columns of a key, from names that are none: so they cannot hide a swap.

    Args:
        columns: The key columns.
        renames: Old name of a column → its name in ``columns``.

    Raises:
        JobDefinitionError: A rename does not fit.

    """
    if any(old in columns or new not in columns for old, new in renames.items()):
        raise JobDefinitionError(
            f"found renames={dict(renames)!r} for the key columns {tuple(columns)}; expected the old name of a column, "
            "which no column has now, and its present name; correct or remove the rename"
        )


def _same(old: str | None, new: str | None) -> bool:
    return old is None or new is None or old == new


def _same_names(restored: KeyColumns, declared: KeyColumns, renames: Mapping[str, str]) -> bool:
    return len(restored) == len(declared) and all(
        _same(old.name, new.name) or renames.get(old.name or "") == new.name
        for old, new in zip(restored, declared, strict=True)
    )


def _remedy(restored: KeyColumns, declared: KeyColumns, renames: Mapping[str, str]) -> str:
    before, now = {each.name for each in restored}, {each.name for each in declared}
    if len(restored) == len(declared):
        if before == now:
            return f"put the columns back into this order, or {_REWRITE}"
        changed = {
            old.name: new.name
            for old, new in zip(restored, declared, strict=True)
            if not _same(old.name, new.name) and renames.get(old.name or "") != new.name
        }
        if not (changed.keys() & now or set(changed.values()) & before):
            return (
                f"if only the name has changed, declare it with key_by(…, renames={changed!r}); "
                f"for other columns {_REWRITE}"
            )
    return f"name these columns, or {_REWRITE}"


def _described(key: KeyColumns | None) -> str:
    if not key:
        return "a key" if key is None else "no key"
    columns = (" ".join(part for part in (each.name, each.type) if part) or "?" for each in key)
    return f"the key ({', '.join(columns)})"
