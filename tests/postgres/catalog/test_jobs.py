"""The contract of the catalog on PostgreSQL: jobs."""

from tests.contracts.catalog.jobs import *
