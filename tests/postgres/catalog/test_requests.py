"""The contract of the catalog on PostgreSQL: requests."""

from tests.contracts.catalog.requests import *
