"""The contract of the catalog on PostgreSQL: metrics."""

from tests.contracts.catalog.metrics import *
