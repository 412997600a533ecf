"""The contract of the catalog on PostgreSQL: epochs."""

from tests.contracts.catalog.epochs import *
