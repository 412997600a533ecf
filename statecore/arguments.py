"""Checks the arguments of what a job file calls, because annotations refuse nothing."""

from __future__ import annotations

import os
from collections.abc import Collection

from statecore.errors import JobDefinitionError, shortened


def require(argument: str, value: object, kind: type | tuple[type, ...], expected: str) -> None:
    """Check that an argument is of a kind.

    Args:
        argument: Its name, or the call that it is given in.
        value: The argument.
        kind: What it must be an instance of; a class itself never fits.
        expected: The kind in words.

    Raises:
        JobDefinitionError: It is something else.

    """
    if isinstance(value, type) or not isinstance(value, kind):
        raise _refusal(argument, value, expected)


def require_names(argument: str, names: Collection[object], expected: str) -> None:
    """Check that an argument is a collection of strings; one string alone is none, although it has characters.

    Raises:
        JobDefinitionError: It is something else.

    """
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise _refusal(argument, names, expected)


def require_callable(argument: str, value: object, expected: str) -> None:
    """Check that an argument can be called.

    Raises:
        JobDefinitionError: It cannot.

    """
    if not callable(value):
        raise _refusal(argument, value, expected)


def require_path(argument: str, value: object) -> None:
    """Check that an argument is a path or a URL.

    Raises:
        JobDefinitionError: It is something else, or empty.

    """
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise _refusal(argument, value, "a path or a URL")


def _refusal(argument: str, value: object, expected: str) -> JobDefinitionError:
    return JobDefinitionError(f"found {argument}={shortened(value)}; expected {expected}; correct the job file")
