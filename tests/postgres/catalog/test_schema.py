"""The contract of the catalog on PostgreSQL: the tables over releases."""

from tests.contracts.catalog.schema import *
