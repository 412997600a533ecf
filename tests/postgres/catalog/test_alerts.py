"""The contract of the catalog on PostgreSQL: what was told of alerts."""

from tests.contracts.catalog.alerts import *
