"""Refuses unusable names, operators that cannot run, and missing event time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import NoneType

from statecore.arguments import require
from statecore.errors import ConfigurationError, JobDefinitionError, shortened
from statecore.model import OutputTag, parse_row, row_ddl
from statecore.runtime.job.plans import Input, OperatorPlan, SinkBinding, Source
from statecore.runtime.sinks import ParquetSink
from statecore.state.dead_letters import check_on_error
from statecore.state.process import require_fit
from statecore.storage.urls import parse_url

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def check_name(what: str, name: str, taken: Sequence[str]) -> None:
    """Raise JobDefinitionError if a name is unusable or taken."""
    if not isinstance(name, str):
        raise JobDefinitionError(f"found the {what} {shortened(name)}; expected a name; give it as a string")
    if not _NAME.fullmatch(name):
        raise JobDefinitionError(
            f"found the {what} {name!r}; expected letters, digits, '_', '-' and '.', as in a file name; rename it"
        )
    if name in taken:
        raise JobDefinitionError(f"found the {what} {name!r} twice; expected each name once; rename one")


def check_operator(plan: OperatorPlan, taken: Sequence[str]) -> None:
    """Refuse an operator that cannot run.

    Args:
        plan: The operator.
        taken: The uids of the other operators.

    Raises:
        JobDefinitionError: Its function, uid, parallelism, ``late`` or ``on_error`` is invalid.
        UnsupportedTypeError: The columns of its output or of ``late`` cannot be parsed.

    """
    try:
        keyed = bool(plan.first.key_columns)
        require_fit(plan.function, keyed=keyed, broadcast=bool(plan.broadcast), two_inputs=plan.has_two_inputs)
        if plan.on_error is not None:
            check_on_error(plan.on_error, plan.function)
    except ConfigurationError as error:
        raise JobDefinitionError(f"operator {plan.uid!r}: {error}") from None
    check_name("operator uid", plan.uid, taken)
    parse_row(row_ddl(plan.output))
    require("parallelism", plan.parallelism, (int, NoneType), "an integer")
    if plan.parallelism is not None and plan.parallelism < 1:
        raise JobDefinitionError(
            f"found parallelism={plan.parallelism} of operator {plan.uid!r}; expected 1 or more; omit it for the "
            "job's parallelism"
        )
    if plan.late is not None:
        _check_late(plan, plan.late)


def check_sinks(sinks: Sequence[SinkBinding]) -> None:
    """Refuse two sinks with one folder, which would take each other's epochs for their own.

    Tables and topics may have several sinks: there, each sink records its epochs under its name.

    Raises:
        JobDefinitionError: Two sinks have one folder, or engines would skip the files of one.
        ConfigurationError: A folder is no path or URL of a store.

    """
    owners: dict[str, str] = {}
    for binding in sinks:
        if not isinstance(binding.sink, ParquetSink):
            continue
        folder = parse_url(binding.sink.path).url
        owner = owners.setdefault(folder, binding.name)
        if owner != binding.name:
            raise JobDefinitionError(
                f"found the sinks {owner!r} and {binding.name!r} with the folder {folder}; expected one sink per "
                "folder; use separate folders"
            )
        if binding.name.startswith("_"):
            raise JobDefinitionError(
                f"found the sink {binding.name!r} for the folder {folder}; expected a name without a leading '_', "
                "because file names begin with it, and engines skip such files; rename the sink"
            )


def require_event_time(inputs: Sequence[Input], where: str) -> None:
    """Raise JobDefinitionError if a source has no event time."""
    origins = (origin for each in inputs for origin in each.origins)
    timeless = [origin.name for origin in origins if isinstance(origin, Source) and origin.event_time is None]
    if timeless:
        raise JobDefinitionError(
            f"found the source {timeless[0]!r} without event time in {where}; expected event time on both sides; "
            "name the column in source(…, event_time=…)"
        )


def _check_late(plan: OperatorPlan, late: OutputTag) -> None:
    if not isinstance(late, OutputTag):
        raise JobDefinitionError(
            f"found late={late!r} for operator {plan.uid!r}; expected an OutputTag; give OutputTag(name, columns)"
        )
    if plan.has_two_inputs:
        raise JobDefinitionError(
            f"found late={late.name!r} for operator {plan.uid!r} of two inputs; expected one input, whose columns the "
            "late records have; compare ctx.timestamp() with ctx.current_watermark() in the function, and call "
            "ctx.output()"
        )
    timeless = [each.name for each in plan.first.origins if isinstance(each, Source) and each.event_time is None]
    if timeless:
        raise JobDefinitionError(
            f"found late={late.name!r} for operator {plan.uid!r}, whose source {timeless[0]!r} has no event time; "
            "expected one, because lateness follows event time; name the column in source(…, event_time=…), "
            "or omit late"
        )
    parse_row(late.value_type)
