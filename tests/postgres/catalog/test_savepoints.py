"""The contract of the catalog on PostgreSQL: savepoints."""

from tests.contracts.catalog.savepoints import *
