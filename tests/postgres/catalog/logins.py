"""Logins with the database roles of the programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from psycopg import sql
from sqlalchemy import make_url

from statecore.catalog import Catalog
from statecore.catalog.roles import DRIVER, JOB, ROLES
from tests.contracts.catalog.fixtures import ManualClock
from tests.support.postgres import PostgresServer

As = Callable[[str], Catalog]

OWN_DRIVER = "driver_of_one"


@pytest.fixture
def as_role(postgres_server: PostgresServer, catalog: Catalog, catalog_url: str, clock: ManualClock) -> Iterator[As]:
    """Open the catalog as a login that has one of the roles."""
    opened: list[Catalog] = []
    with postgres_server.connect() as connection:
        for role in ROLES:
            if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone() is None:
                connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
                login = sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x' IN ROLE {}")
                connection.execute(login.format(sql.Identifier(f"{role}_login"), sql.Identifier(role)))
    assert catalog.grant_roles() == sorted(ROLES)

    def open_as(role: str) -> Catalog:
        url = make_url(catalog_url).set(username=f"{role}_login", password="x").render_as_string(hide_password=False)
        opened.append(Catalog(url, clock=clock))
        return opened[-1]

    yield open_as
    for each in opened:
        each.close()


@contextmanager
def own_driver(server: PostgresServer, catalog_url: str, job: str, clock: ManualClock) -> Iterator[Catalog]:
    """Open the catalog as a driver of one job."""
    with server.connect() as connection:
        connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(JOB + job)))
        made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x' IN ROLE {}, {}")
        connection.execute(made.format(*map(sql.Identifier, (OWN_DRIVER, DRIVER, JOB + job))))
    url = make_url(catalog_url).set(username=OWN_DRIVER, password="x").render_as_string(hide_password=False)
    try:
        with Catalog(url, clock=clock) as opened:
            yield opened
    finally:
        with server.connect() as connection:
            for role in (OWN_DRIVER, JOB + job):
                connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
