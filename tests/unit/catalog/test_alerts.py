"""The contract of the catalog on SQLite: what was told of alerts."""

from tests.contracts.catalog.alerts import *
