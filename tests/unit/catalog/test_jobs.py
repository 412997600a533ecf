"""The contract of the catalog on SQLite: jobs."""

from tests.contracts.catalog.jobs import *
