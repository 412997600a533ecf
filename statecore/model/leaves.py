"""Checks of scalar values, shared by keys and stored values: a value is accepted exactly or refused.

===========================  ==========================================================================
type                         accepted values, and their stored form
===========================  ==========================================================================
boolean                      bool
tinyint … bigint             integers within the bounds of the type
float, double                floats, and integers that convert exactly; a float is rounded to 32 bits
decimal                      integers and decimals that keep every digit; stored with the scale of the type
string                       str that encodes as UTF-8
binary                       bytes, bytearray, memoryview; stored as bytes
date                         dates, but not datetimes
timestamp                    datetimes of any time zone, naive ones as UTC; stored in UTC
timestamp_ntz                naive datetimes
===========================  ==========================================================================

A numpy scalar counts as its Python value. A subclass instance is stored as its plain class.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from datetime import date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

from statecore.errors import shortened
from statecore.model.types import AtomicType, DataType, DecimalType, StringType

Check = Callable[[Any], Any]

ARROW_UTC = ZoneInfo("UTC")
"""The time zone object of pyarrow's timestamps."""

EXACT = Context(prec=100)
"""Decimal arithmetic wide enough never to round a Spark decimal."""

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

_FLOAT = struct.Struct("<f")


class MisfitError(Exception):
    """A value does not fit its type; the caller that knows the state or key raises StateTypeError from it.

    Attributes:
        value: The part that does not fit.
        expected: DDL of that part, followed by ``not null`` if None does not fit.
        path: Path of the part in the whole value, e.g. ``a.b[3]``; empty for the whole value.
        fields: Missing and surplus fields of the part; empty for other misfits.

    """

    def __init__(self, value: object, expected: str, path: str = "", fields: str = "") -> None:
        super().__init__(value, expected, path, fields)
        self.value = value
        self.expected = expected
        self.path = path
        self.fields = fields

    @property
    def details(self) -> str:
        """The part and its fields in brackets, for a message; empty when the value says everything."""
        part = f"{self.path} is {shortened(self.value)}, not {self.expected}" if self.path else ""
        said = "; ".join(filter(None, (part, self.fields)))
        return f" ({said})" if said else ""

    def within(self, step: str) -> MisfitError:
        """Return the error with ``step`` (``a`` or ``[3]``) prepended to its path."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        return MisfitError(self.value, self.expected, f"{step}{dot}{self.path}", self.fields)


def leaf_check(data_type: DataType) -> Check:
    """Return the check of a scalar type; it returns the stored form or raises MisfitError, also for None."""
    ddl = data_type.ddl()
    match data_type:
        case DecimalType():
            return lambda value: _decimal(value, data_type)
        case StringType():
            return lambda value: _string(value, ddl)
        case AtomicType(name) if name in INTEGER_BITS:
            limit = 1 << (INTEGER_BITS[name] - 1)
            return lambda value: _integer(value, limit, ddl)
        case AtomicType(name):
            check = _ATOMS[name]
            return lambda value: check(value, ddl)
    raise AssertionError(f"no leaf check for {ddl}")


def nullable(check: Check) -> Check:
    """Return a check that also accepts None."""
    return lambda value: None if value is None else check(value)


def round_to_float(value: float) -> float:
    """Round to 32 bits; raise OverflowError for a finite value out of range."""
    number: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return number


def _unboxed(value: Any, kinds: str) -> Any:
    """Return the Python value of a numpy scalar of these kinds, and any other value unchanged."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    return value.item() if isinstance(kind, str) and kind in kinds and value.shape == () else value


def _boolean(value: Any, ddl: str) -> bool:
    truth = _unboxed(value, "b")
    if not isinstance(truth, bool):
        raise MisfitError(value, ddl)
    return truth


def _integer(value: Any, limit: int, ddl: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise MisfitError(value, ddl) from None
    if isinstance(value, bool) or not -limit <= number < limit:
        raise MisfitError(value, ddl)
    return number


def _double(value: Any, ddl: str) -> float:
    number = _unboxed(value, "iuf")
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise MisfitError(value, ddl)
    try:
        double = float(number)
    except OverflowError:
        raise MisfitError(value, ddl) from None
    return _same(double, number, value, ddl)


def _float(value: Any, ddl: str) -> float:
    double = _double(value, ddl)
    try:
        rounded = round_to_float(double)
    except OverflowError:
        raise MisfitError(value, ddl) from None
    return rounded if isinstance(_unboxed(value, "f"), float) else _same(rounded, double, value, ddl)


def _same(converted: float, number: float, value: object, ddl: str) -> float:
    """Refuse an integer that did not convert to float exactly."""
    if converted != number and number == number:
        raise MisfitError(value, ddl)
    return converted


def _decimal(value: Any, data_type: DecimalType) -> Decimal:
    number = _unboxed(value, "iu")
    if isinstance(number, bool) or not isinstance(number, int | Decimal):
        raise MisfitError(value, data_type.ddl())
    try:
        exact = Decimal(number)
        scaled = exact.quantize(Decimal(1).scaleb(-data_type.scale), context=EXACT)
    except InvalidOperation:
        raise MisfitError(value, data_type.ddl()) from None
    if scaled != exact or scaled.adjusted() >= data_type.precision - data_type.scale:
        raise MisfitError(value, data_type.ddl())
    return abs(scaled) if scaled.is_zero() else scaled


def _string(value: Any, ddl: str) -> str:
    if not isinstance(value, str):
        raise MisfitError(value, ddl)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise MisfitError(value, ddl) from None
    return str.__str__(value)


def _binary(value: Any, ddl: str) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise MisfitError(value, ddl)
    return bytes(value)


def _date(value: Any, ddl: str) -> date:
    day = _unboxed(value, "M")
    if not isinstance(day, date) or isinstance(day, datetime):
        raise MisfitError(value, ddl)
    return day if type(day) is date else date(day.year, day.month, day.day)


def _timestamp(value: Any, ddl: str) -> datetime:
    if type(value) is datetime and value.tzinfo is ARROW_UTC and not value.fold:
        return value
    moment = _moment(value, ddl)
    try:
        if moment.utcoffset() is None:
            return _plain(moment.replace(tzinfo=ARROW_UTC))
        return _plain(moment.astimezone(ARROW_UTC))
    except (OverflowError, ValueError):
        raise MisfitError(value, ddl) from None


def _timestamp_ntz(value: Any, ddl: str) -> datetime:
    moment = _moment(value, ddl)
    if moment.tzinfo is not None:
        raise MisfitError(value, ddl)
    return _plain(moment)


def _moment(value: Any, ddl: str) -> datetime:
    moment = _unboxed(value, "M")
    # Refuse pandas' nanoseconds, which no Spark type keeps, and NaT, whose nanosecond is NaN.
    if not isinstance(moment, datetime) or getattr(moment, "nanosecond", None):
        raise MisfitError(value, ddl)
    return moment


def _plain(moment: datetime) -> datetime:
    if type(moment) is datetime and not moment.fold:
        return moment
    return datetime.combine(date(moment.year, moment.month, moment.day), moment.time().replace(fold=0), moment.tzinfo)


_ATOMS: dict[str, Callable[[Any, str], Any]] = {
    "boolean": _boolean,
    "float": _float,
    "double": _double,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
}
