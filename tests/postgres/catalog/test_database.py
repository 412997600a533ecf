"""The contract of the catalog on PostgreSQL: the database itself."""

from tests.contracts.catalog.database import *
