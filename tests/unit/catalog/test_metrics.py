"""The contract of the catalog on SQLite: metrics."""

from tests.contracts.catalog.metrics import *
