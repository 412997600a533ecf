"""The contract of the catalog on SQLite: the database itself."""

from tests.contracts.catalog.database import *
