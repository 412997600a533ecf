"""Base class of a DAG run's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from statecore.errors import ConfigurationError


class DagParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a DAG run: one attribute per parameter of the DAG."""

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Self:
        """Convert the parameters of a DAG run.

        Raises:
            ConfigurationError: A parameter is missing, unknown, or of the wrong type.

        """
        try:
            return msgspec.convert(dict(params), cls)
        except msgspec.ValidationError as error:
            raise ConfigurationError(
                f"found the parameters {dict(params)} ({error}); expected those of the DAG's form; correct them and "
                "trigger a new run"
            ) from error
