"""Values of types without parts, taken exactly or refused; what a key and a stored value have in common.

===========================  ==========================================================================
type                         what is taken, and what becomes of it
===========================  ==========================================================================
boolean                      bool
tinyint … bigint             integers within the bounds of the type
float, double                floats, and integers they can hold; a float is rounded to 32 bits
decimal                      integers and decimals that keep every digit; they get the scale of the type
string                       text that UTF-8 can hold
binary                       bytes, bytearray, memoryview; they become bytes
date                         dates that are no datetimes
timestamp                    datetimes of any zone, without one read as UTC; they become UTC
timestamp_ntz                datetimes without a zone
===========================  ==========================================================================

A numpy scalar counts as the Python value that it holds, and a subclass becomes its plain class.
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
"""The zone of the timestamps that pyarrow gives."""

# Wide enough that no rounding happens before the check that nothing is lost.
EXACT = Context(prec=100)
"""Decimal arithmetic that rounds nothing a Spark decimal can hold."""

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

_FLOAT = struct.Struct("<f")


class MisfitError(Exception):
    """A value does not fit its type; whoever knows the state or key turns it into a StateTypeError.

    Attributes:
        value: The part that does not fit.
        expected: DDL of that part, followed by ``not null`` where None is what does not fit.
        path: Where the part lies in the whole, e.g. ``a.b[3]``; empty for the whole itself.
        fields: Which fields the part lacks or has too many, in words; empty for other misfits.

    """

    def __init__(self, value: object, expected: str, path: str = "", fields: str = "") -> None:
        super().__init__(value, expected, path, fields)
        self.value = value
        self.expected = expected
        self.path = path
        self.fields = fields

    @property
    def details(self) -> str:
        """The part and its fields in brackets, for a message; empty when there is no more to say than the value."""
        part = f"{self.path} is {shortened(self.value)}, not {self.expected}" if self.path else ""
        said = "; ".join(filter(None, (part, self.fields)))
        return f" ({said})" if said else ""

    def within(self, step: str) -> MisfitError:
        """Return the error as seen from one level up, where ``step`` (``a`` or ``[3]``) leads to the value."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        return MisfitError(self.value, self.expected, f"{step}{dot}{self.path}", self.fields)


def leaf_check(data_type: DataType) -> Check:
    """Return the function that gives the exact plain value of a type without parts, or raises MisfitError.

    None is refused.
    """
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
    """Return the check that lets None through as well."""
    return lambda value: None if value is None else check(value)


def round_to_float(value: float) -> float:
    """Return the nearest value of 32 bits; OverflowError when a finite value has none."""
    number: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return number


def _unboxed(value: Any, kinds: str) -> Any:
    """Return what a numpy scalar of one of these kinds holds, and anything else as it is."""
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


def _same(found: float, number: float, value: object, ddl: str) -> float:
    """Refuse an integer that its float does not hold."""
    if found != number and number == number:
        raise MisfitError(value, ddl)
    return found


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
    # pandas has nanoseconds, which no Spark type keeps, and NaT, a datetime whose nanosecond is NaN.
    if not isinstance(moment, datetime) or getattr(moment, "nanosecond", None):
        raise MisfitError(value, ddl)
    return moment


def _plain(moment: datetime) -> datetime:
    if type(moment) is datetime and not moment.fold:
        return moment
    return datetime(
        moment.year,
        moment.month,
        moment.day,
        moment.hour,
        moment.minute,
        moment.second,
        moment.microsecond,
        moment.tzinfo,
    )


_ATOMS: dict[str, Callable[[Any, str], Any]] = {
    "boolean": _boolean,
    "float": _float,
    "double": _double,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
}
