"""The catalog that the routes read."""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import Depends
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from statecore.catalog import Catalog
from statecore_airflow.hooks.settings import CatalogSettings

_CONNECT_TIMEOUT_S = 5
"""Short, so that an unreachable database does not block threads that Airflow's own requests need."""


class _Opened:
    """The catalog of this process; reopened when Airflow's connection changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._url = ""
        self._catalog: Catalog | None = None

    def at(self, url: str) -> Catalog:
        with self._lock:
            if self._catalog is None or url != self._url:
                if self._catalog is not None:
                    self._catalog.close()
                self._catalog, self._url = Catalog(_with_timeout(url)), url
            return self._catalog


_opened = _Opened()


def open_catalog() -> Catalog:
    """Return the catalog of Airflow's connection.

    Raises:
        ConfigurationError: There is no such connection, or it has no catalog URL.

    """
    return _opened.at(CatalogSettings.load().url)


CatalogDep = Annotated[Catalog, Depends(open_catalog)]


def _with_timeout(url: str) -> str:
    try:
        parsed = make_url(url)
    except ArgumentError:
        return url  # opening the catalog raises the better error
    if parsed.get_backend_name() != "postgresql":
        return url
    query = {"connect_timeout": str(_CONNECT_TIMEOUT_S), **parsed.query}
    return parsed.set(query=query).render_as_string(hide_password=False)
