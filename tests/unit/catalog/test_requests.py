"""The contract of the catalog on SQLite: requests."""

from tests.contracts.catalog.requests import *
