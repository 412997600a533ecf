"""The parameters of a DAG run, as its form gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from statecore.errors import ConfigurationError


class DagParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of what is asked for by a run: one attribute for each parameter of its DAG."""

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Self:
        """Read the parameters of a DAG run.

        Raises:
            ConfigurationError: One is missing, unknown, or of another type.

        """
        try:
            return msgspec.convert(dict(params), cls)
        except msgspec.ValidationError as error:
            raise ConfigurationError(
                f"found the parameters {dict(params)} ({error}); expected those of the form; correct them and trigger "
                "a new run"
            ) from error
